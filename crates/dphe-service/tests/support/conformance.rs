//! What every store must do.

use dphe::{Digest, Round};
use dphe_service::store::{Archive, LogStore};

pub fn round(number: u64) -> Round {
    Round::new(number).unwrap()
}

/// The conformance test of a store. `open` opens the same store again after the last one was dropped.
pub async fn conforms<S, F>(mut open: F)
where
    S: LogStore + Archive,
    F: AsyncFnMut() -> S,
{
    // the log is empty at first, grows, and survives a restart
    let mut store = open().await;
    assert!(store.load().await.unwrap().is_empty());
    store.append(b"one").await.unwrap();
    store.append(b"").await.unwrap();
    store.append(&[0; 100_000]).await.unwrap();
    let expected = [&b"one"[..], &[0; 100_000]].concat();
    assert!(*store.load().await.unwrap() == expected);
    drop(store);
    let mut store = open().await;
    assert!(*store.load().await.unwrap() == expected, "appended records survive a restart");

    // the log is replaced as a whole and can be appended to
    store.replace(b"checkpoint").await.unwrap();
    assert_eq!(store.load().await.unwrap()[..], b"checkpoint"[..]);
    store.append(b" and more").await.unwrap();
    drop(store);
    let mut store = open().await;
    assert_eq!(store.load().await.unwrap()[..], b"checkpoint and more"[..]);
    store.replace(b"").await.unwrap();
    assert!(store.load().await.unwrap().is_empty());

    // a log begins once, and the number of the store stays the same
    store.begin_log(b"first").await.unwrap();
    store.begin_log(b"second").await.unwrap();
    assert_eq!(store.load().await.unwrap()[..], b"first"[..]);
    let about = store.about().await.unwrap();
    assert_eq!(about.roster, None, "no party has started here");
    drop(store);
    let mut store = open().await;
    assert_eq!(store.about().await.unwrap(), about);
    store.replace(b"").await.unwrap();

    // models are found by digest and by round, replaced, and deleted
    let digest = |model: &[u8]| Digest::of_model(model);
    assert_eq!(store.latest_model(round(9)).await.unwrap(), None);
    for (number, model) in [(1, b"first"), (2, b"wrong"), (2, b"other"), (4, b"later")] {
        store.put_model(round(number), digest(model), model).await.unwrap();
    }
    assert_eq!(store.model(digest(b"other")).await.unwrap().as_deref(), Some(&b"other"[..]));
    assert_eq!(store.model(digest(b"wrong")).await.unwrap(), None, "the model was replaced");
    assert_eq!(store.latest_model(round(3)).await.unwrap(), Some((round(2), b"other".to_vec())));
    assert_eq!(store.latest_model(round(9)).await.unwrap(), Some((round(4), b"later".to_vec())));
    store.forget_models(round(2)).await.unwrap();
    assert_eq!(store.latest_model(round(1)).await.unwrap(), None);
    assert_eq!(store.latest_model(round(2)).await.unwrap(), Some((round(2), b"other".to_vec())));

    // there is one record per round and one message per round and kind, in order
    for number in [2, 1, 3, 2] {
        store.put_round_record(round(number), &format!("{{\"round\":{number}}}")).await.unwrap();
        store.put_message(round(number), 11, &[number as u8]).await.unwrap();
        store.put_message(round(number), 2, b"ticket").await.unwrap();
    }
    drop(store);
    let mut store = open().await;
    let reports = store.round_records(round(2)).await.unwrap();
    assert_eq!(reports.iter().map(|(round, _)| round.get()).collect::<Vec<_>>(), [2, 3]);
    let messages = store.messages(round(2)).await.unwrap();
    let kinds: Vec<_> = messages.iter().map(|(round, kind, _)| (round.get(), *kind)).collect();
    assert_eq!(kinds, [(2, 2), (2, 11), (3, 2), (3, 11)]);
    assert_eq!(messages[1].2, [2]);
}
