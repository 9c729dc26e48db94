//! The limit of open files. Every connection is an open file, and the usual soft limit is far below
//! [`Limits::connections`].
//!
//! [`Limits::connections`]: super::server::Limits::connections

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of files that a service needs besides its connections: for its store, its own requests and the dashboard.
pub const OTHER_FILES: u64 = 200;

/// Raises the limit of open files as far as possible. Returns the new limit, or `None` if there is none.
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
    fn open_file_limit_is_raised_to_the_hard_limit() {
        let before = getrlimit(Resource::Nofile);
        let raised = raise_open_files();
        let after = getrlimit(Resource::Nofile);
        assert_eq!((after.current, after.maximum), (raised, before.maximum));
        assert!(raised.is_none_or(|limit| before.current.is_some_and(|before| limit >= before)));
        assert_eq!(raise_open_files(), raised, "a second call changes nothing");
    }
}
