//! Short lists, mostly of no element or one: of each socket there are several, and tens of thousands of sockets.

/// A list without order. An element costs no memory of its own unless there are several.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Few<T> {
    /// Nothing.
    #[default]
    None,
    /// One element.
    One(T),
    /// There were several once.
    #[expect(clippy::box_collection, reason = "one word instead of three where there are none")]
    Many(Box<Vec<T>>),
}

impl<T: Copy + PartialEq> Few<T> {
    /// The elements.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            Few::None => &[],
            Few::One(one) => std::slice::from_ref(one),
            Few::Many(many) => many,
        }
    }

    /// Adds an element.
    pub(crate) fn push(&mut self, value: T) {
        match self {
            Few::None => *self = Few::One(value),
            Few::One(one) => *self = Few::Many(Box::new(vec![*one, value])),
            Few::Many(many) => many.push(value),
        }
    }

    /// Takes one such element out, where there is one.
    pub(crate) fn remove(&mut self, value: T) {
        match self {
            Few::One(one) if *one == value => *self = Few::None,
            Few::Many(many) => {
                if let Some(at) = many.iter().position(|found| *found == value) {
                    many.swap_remove(at);
                }
            }
            _ => {}
        }
    }

    /// There is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_and_go() {
        let mut few = Few::default();
        few.remove(1);
        assert!(few.is_empty());
        for value in [1, 2, 2, 3] {
            few.push(value);
        }
        few.remove(2);
        few.remove(9);
        let mut left = few.as_slice().to_vec();
        left.sort();
        assert_eq!(left, [1, 2, 3]);
        [1, 2, 3].into_iter().for_each(|value| few.remove(value));
        assert!(few.is_empty());
        few = Few::One(5);
        few.remove(4);
        assert_eq!(few.as_slice(), [5]);
        few.remove(5);
        assert_eq!(few, Few::None);
    }
}
