//! Rings and doorbells under the model checker: every interleaving of two threads, and every value that the memory
//! model lets a load see. `make model` runs it.
use crate::announce::{one_more, somebody_sleeps};
use crate::ring::{Full, pair, pipe};
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Relaxed, SeqCst};
use loom::sync::atomic::{AtomicU32, fence};
use loom::thread;

/// Every descriptor comes once, whole and in order, also where positions wrap and the ring is full in between.
#[test]
fn a_ring_hands_over_each_descriptor_once() {
    loom::model(|| {
        let (mut producer, mut consumer) = pair::<2>(2, u32::MAX);
        let sender = thread::spawn(move || {
            let mut refused = 0;
            for number in 1..=3u64 {
                while producer.push([number, !number]) == Err(Full) {
                    refused += 1;
                    thread::yield_now();
                }
            }
            (refused, producer)
        });
        let mut expected = 1;
        while expected <= 3 {
            match consumer.pop().expect("positions that can be") {
                Some(found) => {
                    assert_eq!(found, [expected, !expected]);
                    expected += 1;
                }
                None => thread::yield_now(),
            }
        }
        assert_eq!(consumer.pop(), Ok(None));
        let (_, producer) = sender.join().unwrap();
        assert!(producer.is_drained());
    });
}

/// The same of descriptors that are added and read several at once, and given back together.
#[test]
fn a_ring_hands_over_batches() {
    loom::model(|| {
        let (mut producer, mut consumer) = pair::<2>(2, u32::MAX);
        let sender = thread::spawn(move || {
            let descriptors = [1u64, 2, 3].map(|number| [number, !number]);
            let mut left = &descriptors[..];
            while !left.is_empty() {
                let added = producer.add_all(left);
                producer.publish();
                left = &left[added..];
                if added == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut expected = 1;
        while expected <= 3 {
            let waiting = consumer.waiting().expect("positions that can be");
            for before in 0..waiting {
                assert_eq!(consumer.at(before), [expected, !expected]);
                expected += 1;
            }
            match waiting {
                0 => thread::yield_now(),
                _ => consumer.release(waiting),
            }
        }
        sender.join().unwrap();
    });
}

/// The same of a ring whose elements have valid bits, where the producer reads the consumer's counter for each element.
#[test]
fn a_pipe_hands_over_each_element_once() {
    loom::model(|| {
        // The last laps before positions wrap.
        let (mut producer, mut consumer) = pipe::<2>(2, 0u32.wrapping_sub(4), 1);
        let sender = thread::spawn(move || {
            for number in 1..=3u64 {
                while producer.push([number, number ^ 7]) == Err(Full) {
                    thread::yield_now();
                }
            }
            producer
        });
        let mut expected = 1;
        while expected <= 3 {
            match consumer.pop() {
                Some(found) => {
                    assert_eq!(found, [expected, expected ^ 7]);
                    expected += 1;
                }
                None => thread::yield_now(),
            }
        }
        assert_eq!(consumer.pop(), None);
        assert!(sender.join().unwrap().is_drained());
    });
}

/// Publishes and checks for a sleeper on one thread; announces itself and polls for work on the other. Returns whether
/// one of them saw the other.
fn one_sees_the_other(announce: fn(&AtomicU32)) -> bool {
    let (word, work) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let ringer = {
        let (word, work) = (Arc::clone(&word), Arc::clone(&work));
        thread::spawn(move || {
            work.store(1, Relaxed);
            somebody_sleeps(&word, false)
        })
    };
    announce(&word);
    let saw = work.load(Relaxed) == 1;
    let rang = ringer.join().unwrap();
    saw || rang
}

#[test]
fn no_wakeup_is_lost() {
    loom::model(|| {
        let announce = |word: &AtomicU32| {
            one_more(word);
            fence(SeqCst);
        };
        assert!(one_sees_the_other(announce));
    });
}

/// The model can find a lost wake-up.
#[test]
#[should_panic(expected = "one_sees_the_other")]
fn without_the_fence_the_model_finds_a_lost_wakeup() {
    loom::model(|| {
        let announce = |word: &AtomicU32| {
            word.fetch_add(1, Relaxed);
        };
        assert!(one_sees_the_other(announce));
    });
}

/// A message in a ring, and the bell after it: a consumer that announces itself and finds the ring empty is rung.
#[test]
fn a_message_is_found_or_its_sender_rings() {
    loom::model(|| {
        let (mut producer, mut consumer) = pair::<2>(2, 0);
        let word = Arc::new(AtomicU32::new(0));
        let ringer = {
            let word = Arc::clone(&word);
            thread::spawn(move || {
                producer.push([7, 8]).expect("room");
                somebody_sleeps(&word, false)
            })
        };
        one_more(&word);
        fence(SeqCst);
        let found = !consumer.is_empty();
        let rang = ringer.join().unwrap();
        assert!(found || rang);
        assert_eq!(consumer.pop(), Ok(Some([7, 8])));
    });
}
