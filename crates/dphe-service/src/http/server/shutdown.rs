//! Stopping a service.

use tokio::sync::watch;

/// A receiver of the stop signal. Every task of a service holds a clone.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// The sender of the stop signal.
#[derive(Debug)]
pub struct ShutdownSwitch(watch::Sender<bool>);

/// Creates a switch and its receiver.
pub fn shutdown() -> (ShutdownSwitch, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (ShutdownSwitch(sender), Shutdown(receiver))
}

impl ShutdownSwitch {
    /// Sends the stop signal.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Waits for the stop signal. Dropping the switch counts as the signal.
    pub async fn wait(&mut self) {
        let _ = self.0.wait_for(|&stop| stop).await;
    }
}
