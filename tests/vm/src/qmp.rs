//! The emulator's control connection: commands, and the events that say what really happened to a guest.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::timeline::{GuestNo, Timeline, What};

/// Longest wait for the answer to a command.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Events that belong into the timeline; the others (one for each failing request) would drown it.
const KEPT: [&str; 6] = ["WATCHDOG", "RESET", "SHUTDOWN", "POWERDOWN", "STOP", "RESUME"];

/// A connection to one emulator.
pub(crate) struct Qmp {
    stream: UnixStream,
    answers: Receiver<Value>,
}

impl Qmp {
    /// Takes over `stream`, which the emulator has just accepted.
    ///
    /// # Errors
    /// The emulator does not speak.
    pub(crate) fn new(stream: UnixStream, guest: GuestNo, timeline: Arc<Timeline>) -> Result<Self, String> {
        let reader = stream.try_clone().map_err(|error| format!("control connection: {error}"))?;
        let (sender, answers) = channel();
        thread::spawn(move || {
            for line in BufReader::new(reader).lines() {
                let Ok(line) = line else { return };
                let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
                if let Some(name) = value["event"].as_str() {
                    if KEPT.contains(&name) {
                        let data = &value["data"];
                        let detail =
                            data["reason"].as_str().or_else(|| data["action"].as_str()).unwrap_or("");
                        timeline.push(What::Qmp(guest, name.to_owned(), detail.to_owned()));
                    }
                } else if value.get("QMP").is_none() && sender.send(value).is_err() {
                    return;
                }
            }
        });
        let mut qmp = Self { stream, answers };
        qmp.command("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// The emulator refuses, is gone, or does not answer.
    pub(crate) fn command(&mut self, name: &str, arguments: &Value) -> Result<Value, String> {
        let text = format!("{}\n", json!({ "execute": name, "arguments": arguments }));
        self.stream.write_all(text.as_bytes()).map_err(|error| format!("{name}: {error}"))?;
        let answer = self.answers.recv_timeout(ANSWER_LIMIT).map_err(|error| format!("{name}: {error}"))?;
        match answer.get("error") {
            Some(error) => Err(format!("{name}: {error}")),
            None => Ok(answer["return"].clone()),
        }
    }
}
