//! Parallel computation. Results never depend on the number of threads.

use std::num::NonZeroUsize;

const MAX_THREADS: usize = 256;

/// Returns the number of threads that the machine runs at once, or one if it is unknown.
pub fn all_cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Runs `work` on every item, in contiguous shares and returns the results in the order of the items.
/// Starts at most `MAX_THREADS` threads.
pub(crate) fn parallel_map<T: Send, R: Send>(
    threads: NonZeroUsize,
    items: Vec<T>,
    work: impl Fn(usize, T) -> R + Sync,
) -> Vec<R> {
    let share = items.len().div_ceil(threads.get().min(MAX_THREADS)).max(1);
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
                    part.into_iter().enumerate().map(|(i, item)| work(start + i, item)).collect::<Vec<R>>()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_for_any_number_of_threads() {
        let expected: Vec<usize> = (0..10).map(|i| i * 100 + i).collect();
        for threads in 1..12 {
            let items: Vec<usize> = (0..10).map(|i| i * 100).collect();
            assert_eq!(
                parallel_map(NonZeroUsize::new(threads).unwrap(), items, |i, item| item + i),
                expected
            );
        }
        assert!(parallel_map(NonZeroUsize::MIN, Vec::<u8>::new(), |_, b| b).is_empty());
    }
}
