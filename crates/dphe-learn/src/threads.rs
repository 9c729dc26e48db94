//! Threads: how many a call may use, and the one way they are used.

use core::num::NonZeroUsize;

/// How many threads a call may use. Results never depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads(NonZeroUsize);

impl Threads {
    /// The calling thread only.
    pub const ONE: Self = Self(NonZeroUsize::MIN);

    /// More than this are never started.
    const MOST: usize = 256;

    /// `count` threads, at least one and at most 256.
    pub fn new(count: usize) -> Self {
        Self(NonZeroUsize::new(count.min(Self::MOST)).unwrap_or(NonZeroUsize::MIN))
    }

    /// As many as the machine runs at once.
    pub fn all() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, NonZeroUsize::get))
    }

    /// The number.
    pub fn get(self) -> usize {
        self.0.get()
    }

    /// Runs `work` on every item, in contiguous shares, and returns the results in the order of the items.
    pub(crate) fn map<T: Send, R: Send>(self, items: Vec<T>, work: impl Fn(usize, T) -> R + Sync) -> Vec<R> {
        let share = items.len().div_ceil(self.get()).max(1);
        if share >= items.len() {
            return items.into_iter().enumerate().map(|(i, item)| work(i, item)).collect();
        }
        let mut parts: Vec<(usize, Vec<T>)> = Vec::new();
        for (i, item) in items.into_iter().enumerate() {
            match parts.last_mut() {
                Some((_, part)) if part.len() < share => part.push(item),
                _ => parts.push((i, vec![item])),
            }
        }
        std::thread::scope(|scope| {
            let work = &work;
            let handles: Vec<_> = parts
                .into_iter()
                .map(|(start, part)| {
                    scope.spawn(move || {
                        part.into_iter()
                            .enumerate()
                            .map(|(i, item)| work(start + i, item))
                            .collect::<Vec<R>>()
                    })
                })
                .collect();
            let mut all = Vec::new();
            for handle in handles {
                match handle.join() {
                    Ok(part) => all.extend(part),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            all
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_for_any_number_of_threads() {
        let expected: Vec<usize> = (0..10).map(|i| i * 100 + i).collect();
        for threads in 1..12 {
            let items: Vec<usize> = (0..10).map(|i| i * 100).collect();
            assert_eq!(Threads::new(threads).map(items, |i, item| item + i), expected);
        }
        assert!(Threads::new(3).map(Vec::<u8>::new(), |_, b| b).is_empty());
    }
}
