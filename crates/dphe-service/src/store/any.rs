//! A store of any kind. The services use it, so that they are compiled once and not once per kind of store.

use std::future::Future;
use std::pin::Pin;

use dphe::{Digest, Round};
use zeroize::Zeroizing;

use super::{AboutStore, Archive, LogStore, StoreError};

/// A store whose type is erased.
pub(crate) struct AnyStore(Box<dyn Methods>);

impl AnyStore {
    pub(crate) fn new(store: impl LogStore + Archive) -> Self {
        Self(Box::new(store))
    }
}

type Stored<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Writes each method of the two traits three times: as one that returns a boxed future, for stores of a known type,
/// and for [`AnyStore`]. Arguments after a semicolon are references.
macro_rules! erase {
    ($($trait:ident {
        $(fn $name:ident($($arg:ident: $type:ty),* $(; $reference:ident: $target:ty)?) -> $out:ty;)+
    })+) => {
        trait Methods: Send {
            $($(fn $name<'a>(
                &'a mut self $(, $arg: $type)* $(, $reference: &'a $target)?
            ) -> Stored<'a, $out>;)+)+
        }

        impl<S: LogStore + Archive> Methods for S {
            $($(fn $name<'a>(
                &'a mut self $(, $arg: $type)* $(, $reference: &'a $target)?
            ) -> Stored<'a, $out> {
                Box::pin($trait::$name(self $(, $arg)* $(, $reference)?))
            })+)+
        }

        $(impl $trait for AnyStore {
            $(async fn $name(
                &mut self $(, $arg: $type)* $(, $reference: &$target)?
            ) -> Result<$out, StoreError> {
                self.0.$name($($arg,)* $($reference)?).await
            })+
        })+
    };
}

erase! {
    LogStore {
        fn about() -> AboutStore;
        fn remember_roster(hash: Digest) -> ();
        fn begin_log(; bytes: [u8]) -> ();
        fn load() -> Zeroizing<Vec<u8>>;
        fn append(; bytes: [u8]) -> ();
        fn replace(; bytes: [u8]) -> ();
    }
    Archive {
        fn put_model(round: Round, digest: Digest; model: [u8]) -> ();
        fn model(digest: Digest) -> Option<Vec<u8>>;
        fn latest_model(round: Round) -> Option<(Round, Vec<u8>)>;
        fn forget_models(before: Round) -> ();
        fn put_round_record(round: Round; record: str) -> ();
        fn round_records(from: Round) -> Vec<(Round, String)>;
        fn put_message(round: Round, kind: u8; message: [u8]) -> ();
        fn round_messages(round: Round) -> Vec<(u8, Vec<u8>)>;
        fn messages(from: Round) -> Vec<(Round, u8, Vec<u8>)>;
    }
}
