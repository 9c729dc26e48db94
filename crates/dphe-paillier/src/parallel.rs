//! Division of work among threads.

use core::num::NonZeroUsize;

/// The number of threads that a call may use. Results never depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads(NonZeroUsize);

impl Threads {
    /// The calling thread only.
    pub const ONE: Self = Self(NonZeroUsize::MIN);

    /// The most threads that a call ever starts.
    const MOST: usize = 256;

    /// Returns `count` threads, but at least one and at most 256.
    pub fn new(count: usize) -> Self {
        Self(NonZeroUsize::new(count.min(Self::MOST)).unwrap_or(NonZeroUsize::MIN))
    }

    /// Returns as many threads as the machine runs at once.
    pub fn all() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, NonZeroUsize::get))
    }

    /// Returns the number of threads.
    pub fn get(self) -> usize {
        self.0.get()
    }

    /// Splits `items` into one part per thread, cut at multiples of `grain`, and runs `work` on each part
    /// with the index of its first item. Returns the results in the order of the parts.
    pub(crate) fn for_each<T: Send, R: Send>(
        self,
        items: &mut [T],
        grain: usize,
        work: impl Fn(usize, &mut [T]) -> R + Sync,
    ) -> Vec<R> {
        let share = self.share(items.len(), grain);
        if share >= items.len() {
            return vec![work(0, items)];
        }
        std::thread::scope(|scope| {
            let work = &work;
            let parts = items.chunks_mut(share).enumerate();
            let handles: Vec<_> = parts.map(|(i, part)| scope.spawn(move || work(i * share, part))).collect();
            handles.into_iter().map(join).collect()
        })
    }

    /// Returns the share of one thread in `count` items.
    fn share(self, count: usize, grain: usize) -> usize {
        count.div_ceil(self.get()).next_multiple_of(grain.max(1)).max(1)
    }

    /// Splits `0..count` into one range per thread, cut at multiples of `grain`, runs `work` on each range
    /// and joins the results in order.
    pub(crate) fn map<R: Send>(
        self,
        count: usize,
        grain: usize,
        work: impl Fn(core::ops::Range<usize>) -> Vec<R> + Sync,
    ) -> Vec<R> {
        let share = self.share(count, grain);
        if share >= count {
            return work(0..count);
        }
        let parts: Vec<_> = (0..count).step_by(share).map(|start| start..count.min(start + share)).collect();
        std::thread::scope(|scope| {
            let work = &work;
            let handles: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || work(part))).collect();
            let mut all = Vec::with_capacity(count);
            handles.into_iter().for_each(|handle| all.extend(join(handle)));
            all
        })
    }
}

/// Returns the result of a thread, and resumes its panic in the calling thread.
fn join<R>(handle: std::thread::ScopedJoinHandle<'_, R>) -> R {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
