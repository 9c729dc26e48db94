//! Decoders of other people's formats that panic on damaged input: their panics become errors.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs a decoder; if it panics, says what it said. Nothing the decoder worked on may be used afterwards.
///
/// The first call wraps the process's panic hook, so that such a panic prints nothing; others print as before.
pub(crate) fn contained<T>(decode: impl FnOnce() -> T) -> Result<T, String> {
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
        (None, None) => "it gave up".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(contained(|| 3), Ok(3));
        assert_eq!(contained(|| -> u8 { panic!("number {}", 7) }), Err("number 7".into()));
        assert_eq!(contained(|| -> u8 { panic!("plain") }), Err("plain".into()));
        assert!(!INSIDE.get());
    }
}
