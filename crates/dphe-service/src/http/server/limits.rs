//! The limits that a service puts on its connections and requests.

use std::time::Duration;

/// The limits of a service's connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest number of connections, including those that are still in their TLS handshake.
    pub connections: usize,
    /// The largest number of connections per party.
    pub connections_of_one: usize,
    /// The sustained number of requests per second and party. Accepted upload chunks of full length do not count.
    pub requests_per_second: u32,
    /// The number of requests that a party may send in one burst.
    pub requests_at_once: u32,
    /// The time for a TLS handshake.
    pub handshake: Duration,
    /// The time for the head of a request, and the time that a connection may be idle.
    pub head: Duration,
    /// The time for the body of a request, besides the time that its length takes at [`MIN_BYTES_PER_SECOND`]. It is
    /// also the time for which a client may leave a response unread.
    pub body: Duration,
    /// The time that running requests have left when the service stops.
    pub linger: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_of_one: 16,
            requests_per_second: 50,
            requests_at_once: 200,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(60),
            body: Duration::from_secs(30),
            linger: Duration::from_secs(10),
        }
    }
}

/// The slowest transfer that a service or client waits for.
pub const MIN_BYTES_PER_SECOND: u64 = 64 << 10;

/// Returns the timeout for a transfer of `length` bytes: `base` and the time at [`MIN_BYTES_PER_SECOND`].
pub fn timeout_for(length: u64, base: Duration) -> Duration {
    base + Duration::from_secs(length / MIN_BYTES_PER_SECOND)
}
