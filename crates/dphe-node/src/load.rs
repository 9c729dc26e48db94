//! Load: a crowd of users in one process that uploads to the services at a given pace, with what goes wrong in real
//! life beside it: uploads that come twice, lines that dawdle, connections that never speak. `dphe bench service` is in
//! front of this.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `crowd` | [`Crowd`]: who uploads, with updates sealed before the round begins |
//! | `send` | [`send`]: the uploads of a round, at a [`Pace`], and what came of them |
//! | `news` | [`Watcher`]: tickets and ends of rounds, as a user hears of them |
//! | `nuisance` | [`Nuisances`]: slow and silent connections, and users who wait for news |

mod crowd;
mod news;
mod nuisance;
mod send;

pub use crowd::Crowd;
pub use news::{Published, Watcher};
pub use nuisance::{Beside, NuisanceCounts, Nuisances};
pub use send::{Pace, Sent, send};
