//! A load generator: many users in one process that upload at a given rate, together with duplicate uploads, slow
//! uploads and idle connections. `dphe bench service` uses it.
//!
//! | module | contents |
//! | --- | --- |
//! | `users` | [`LoadUsers`]: the users, with updates that are sealed before the round starts |
//! | `send` | [`send()`]: the uploads of a round, at a [`Pace`], and their outcome |
//! | `poller` | [`Poller`]: waits for tickets and ends of rounds, as a user does |
//! | `abusive_clients` | [`AbusiveClients`]: slow uploads, idle connections, and users that keep polling |

mod abusive_clients;
mod poller;
mod send;
mod users;

pub(crate) use abusive_clients::{AbusiveClientCounts, AbusiveClientPlan, AbusiveClients};
pub(crate) use poller::Poller;
pub(crate) use send::{Pace, send};
pub(crate) use users::LoadUsers;
