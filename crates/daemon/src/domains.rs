//! Numbers of protection domains: no two programs of the daemon have the same one at the same time.
use memory::Domain;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

#[derive(Default)]
struct Drawn {
    last: u32,
    live: HashSet<u32>,
}

/// Draws numbers. One comes back only after all others.
#[derive(Default)]
pub(crate) struct Domains(Mutex<Drawn>);

impl Domains {
    /// A number that is not in use.
    pub(crate) fn draw(&self) -> Domain {
        let mut drawn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            drawn.last = drawn.last.wrapping_add(1);
            let number = drawn.last;
            if drawn.live.insert(number) {
                return Domain(number);
            }
        }
    }

    /// A domain is gone, and nothing is registered in it any more.
    pub(crate) fn give_back(&self, domain: Domain) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).live.remove(&domain.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_in_use_is_left_out() {
        let domains = Domains::default();
        assert_eq!((domains.draw(), domains.draw()), (Domain(1), Domain(2)));
        domains.0.lock().unwrap().last = 0;
        assert_eq!(domains.draw(), Domain(3));
        domains.give_back(Domain(2));
        domains.0.lock().unwrap().last = 1;
        assert_eq!(domains.draw(), Domain(2));
    }
}
