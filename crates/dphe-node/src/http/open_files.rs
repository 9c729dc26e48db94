//! Every connection is an open file, and the usual limit of those is far below that of connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that a service has open beside its connections: its store, its own calls, the page.
pub const OTHER_FILES: u64 = 200;

/// Raises the limit of open files as far as this process may, and says what it is then; nothing, if there is none.
pub fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum && setrlimit(Resource::Nofile, raised).is_err() {
        return limit.current;
    }
    limit.maximum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_the_process_may_have() {
        let before = getrlimit(Resource::Nofile);
        let raised = raise_open_files();
        let after = getrlimit(Resource::Nofile);
        assert_eq!((after.current, after.maximum), (raised, before.maximum));
        assert!(raised.is_none_or(|limit| before.current.is_some_and(|before| limit >= before)));
        assert_eq!(raise_open_files(), raised, "a second call changes nothing");
    }
}
