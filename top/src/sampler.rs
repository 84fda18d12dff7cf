//! Asks the daemon in a thread of its own: an answer may take as long as the daemon likes.

use crate::snapshot::{self, Snapshot};
use sanlock_client::{Client, ClientError};
use sanlock_sys::clock;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// What the daemon said, or why it did not, and when.
pub(crate) type Answer = (Result<Snapshot, String>, String);

/// The thread. It ends with the program; it holds nothing that anybody would miss.
pub(crate) struct Sampler {
    answers: Receiver<Answer>,
    wake: Sender<()>,
}

impl Sampler {
    /// Asks at once, and then every `interval`, counted from one answer to the next question: a slow daemon is not asked more often.
    pub(crate) fn start(client: Client, interval: Duration) -> Self {
        Self::asking(interval, move || snapshot::gather(&client).map_err(|error| reason(&client, &error)))
    }

    /// The same, with another way to ask.
    pub(crate) fn asking(
        interval: Duration,
        ask: impl Fn() -> Result<Snapshot, String> + Send + 'static,
    ) -> Self {
        let (tell, answers) = mpsc::channel();
        let (wake, woken) = mpsc::channel();
        std::thread::spawn(move || {
            loop {
                let outcome = ask();
                if tell.send((outcome, clock::civil_now(false).to_string())).is_err() {
                    return;
                }
                if woken.recv_timeout(interval) == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
            }
        });
        Self { answers, wake }
    }

    /// The next answer that has not been taken, if there is one.
    pub(crate) fn take(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }

    /// Waits for an answer.
    pub(crate) fn wait(&self, limit: Duration) -> Option<Answer> {
        self.answers.recv_timeout(limit).ok()
    }

    /// Asks now.
    pub(crate) fn refresh(&self) {
        // The thread is gone only when the program is.
        let _ = self.wake.send(());
    }
}

/// Why there is no answer, and what to do.
fn reason(client: &Client, error: &ClientError) -> String {
    match error {
        ClientError::Io { .. } => format!("{}: {error}; is it running?", client.socket_path().display()),
        error => error.to_string(),
    }
}
