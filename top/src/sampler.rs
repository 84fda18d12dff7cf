//! Asks the daemon in a thread of its own: an answer may take as long as the daemon likes.

use crate::snapshot::{self, Snapshot};
use sanlock_client::wire::code;
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
        ClientError::Io { .. } => {
            let next = match error.result_code() {
                code::EACCES => code::next_step(code::EACCES, None).unwrap_or_default(),
                _ => "is it running?",
            };
            format!("{}: {error}; {next}", client.socket_path().display())
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_ask_is_told_who_may() {
        let of = |errno| reason(&Client::new(), &ClientError::Io { op: "connect", errno });
        let refused = of(nix::libc::EACCES);
        assert!(
            refused.ends_with("; run it as root, or as a user in the group of the socket (sanlock)"),
            "{refused}"
        );
        let missing = of(nix::libc::ENOENT);
        assert!(missing.ends_with("; is it running?"), "{missing}");
    }
}
