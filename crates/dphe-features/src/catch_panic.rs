//! Turns panics of third-party decoders into errors. Some of them panic on damaged input.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs a decoder and returns the panic message if it panics. The caller must discard everything that the decoder was
/// changing.
///
/// The first call wraps the process's panic hook, so that these panics print nothing. Other panics print as before.
pub(crate) fn catch_panic<T>(decode: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !INSIDE.get() {
                before(info);
            }
        }));
    });
    let outer = INSIDE.replace(true);
    let decoded = panic::catch_unwind(AssertUnwindSafe(decode));
    INSIDE.set(outer);
    decoded.map_err(|payload| match (payload.downcast_ref::<String>(), payload.downcast_ref::<&str>()) {
        (Some(text), _) => text.clone(),
        (None, Some(text)) => (*text).to_owned(),
        (None, None) => "the decoder panicked".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_message_becomes_the_error() {
        assert_eq!(catch_panic(|| 3), Ok(3));
        assert_eq!(catch_panic(|| -> u8 { panic!("number {}", 7) }), Err("number 7".into()));
        assert_eq!(catch_panic(|| -> u8 { panic!("plain") }), Err("plain".into()));
        assert!(!INSIDE.get());
    }
}
