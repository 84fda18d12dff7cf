//! The threads that write log lines to file, syslog and stderr, so that nobody else waits for any of them, nor one for another.

use sanlock_sys::thread;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::syslog::{Facility, LogFlags, Severity};

use super::Level;

/// Lines waiting to be written; further ones are dropped and counted (command-line.md 11.1).
pub const QUEUE_LINES: usize = 4096;

/// Further ones that are to be on stable storage, as they say why processes are stopped: whoever floods the log does not keep them from it.
pub(super) const DURABLE_LINES: usize = 1024;

/// How long the writer waits for more lines before it sleeps.
const LINGER: Duration = Duration::from_millis(2);

/// Stack of the writer.
const STACK: usize = 128 * 1024;

/// A place where lines go.
#[derive(Debug)]
enum Place {
    File(File),
    Syslog,
    Stderr,
}

/// A place, and up to which priority lines go there. Each has a writer of its own: a file system that hangs keeps nothing from syslog.
#[derive(Debug)]
pub(super) struct Sink {
    place: Place,
    /// A syslog number.
    priority: i32,
}

impl Sink {
    /// Opens what can be opened: a daemon without a log file runs (command-line.md 11.4). The second value says why the
    /// file is missing. Priorities: syslog numbers, -1 for none; stderr gets everything.
    pub(super) fn open(
        file: Option<&Path>,
        file_priority: i32,
        syslog_priority: i32,
        stderr: bool,
    ) -> (Vec<Self>, Option<io::Error>) {
        let mut sinks = Vec::new();
        let mut missing = None;
        if stderr {
            sinks.push(Self { place: Place::Stderr, priority: Level::Debug.priority() });
        }
        if let Some(path) = file.filter(|_| file_priority >= 0) {
            // Not by the starter's mask alone: who may write there may say that something was not so.
            match OpenOptions::new().append(true).create(true).mode(0o644).open(path) {
                Ok(file) => sinks.push(Self { place: Place::File(file), priority: file_priority }),
                Err(error) => missing = Some(error),
            }
        }
        if syslog_priority >= 0 {
            const IDENT: Option<&CStr> = Some(c"sanlock");
            // Without /dev/log the messages go to the console.
            let _ = nix::syslog::openlog(IDENT, LogFlags::LOG_CONS | LogFlags::LOG_PID, Facility::LOG_DAEMON);
            sinks.push(Self { place: Place::Syslog, priority: syslog_priority });
        }
        (sinks, missing)
    }

    /// Up to which level lines go there, if any do.
    pub(super) fn highest(&self) -> Option<Level> {
        [Level::Debug, Level::Warning, Level::Error]
            .into_iter()
            .find(|level| level.priority() <= self.priority)
    }

    /// Of the thread that writes there.
    fn thread_name(&self) -> &'static str {
        match self.place {
            Place::File(_) => "sanlock-log",
            Place::Syslog => "sanlock-syslog",
            Place::Stderr => "sanlock-stderr",
        }
    }

    /// A full disk or a closed terminal must not stop the daemon, and there is nowhere to report it.
    fn write(&mut self, line: &Line) {
        match &mut self.place {
            Place::File(file) => drop(file.write_all(line.text.as_bytes())),
            Place::Syslog => drop(nix::syslog::syslog(line.level.severity(), &*line.text)),
            Place::Stderr => drop(io::stderr().write_all(line.text.as_bytes())),
        }
    }

    /// A file that cannot be synced is still written; nothing better can be done about it.
    fn sync(&self) {
        if let Place::File(file) = &self.place {
            let _ = file.sync_data();
        }
    }
}

/// A line with its final newline. There is one copy of it for all places.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) level: Level,
    pub(super) text: Arc<str>,
}

impl Level {
    fn severity(self) -> Severity {
        match self {
            Self::Error => Severity::LOG_ERR,
            Self::Warning => Severity::LOG_WARNING,
            Self::Debug => Severity::LOG_DEBUG,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Line>,
    dropped: u64,
    sync: bool,
    /// Whether the writer is awake: it looks at all of this again before it sleeps.
    writing: bool,
    closed: bool,
    /// Who waits for the writer.
    flushing: usize,
}

impl State {
    fn has_work(&self) -> bool {
        !self.lines.is_empty() || self.dropped > 0 || self.sync
    }
}

/// Lines on their way to the writer.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Starts the thread that writes to `sink`. It ends after [`Queue::close`].
    pub(super) fn start(self: &Arc<Self>, mut sink: Sink, dropped: fn(u64) -> Line) -> io::Result<()> {
        let queue = Arc::clone(self);
        thread::spawn(sink.thread_name(), STACK, move || {
            let mut state = queue.lock();
            loop {
                if !state.has_work() && state.flushing == 0 && !state.closed {
                    // More lines often follow soon, and whoever logs them need not wake this thread then.
                    state = queue.wait(state, LINGER);
                }
                if !state.has_work() {
                    state.writing = false;
                    if state.flushing > 0 {
                        queue.changed.notify_all();
                    }
                    while !state.has_work() && !state.closed {
                        state = queue.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    }
                    if !state.has_work() {
                        return;
                    }
                }
                state.writing = true;
                let lines = std::mem::take(&mut state.lines);
                let lost = std::mem::take(&mut state.dropped);
                let sync = std::mem::take(&mut state.sync);
                drop(state);
                for line in &lines {
                    sink.write(line);
                }
                if lost > 0 {
                    sink.write(&dropped(lost));
                }
                if sync {
                    sink.sync();
                }
                state = queue.lock();
            }
        })?;
        Ok(())
    }

    /// Queues a line, or counts it as dropped. `durable`: it will be wanted most, and has room of its own.
    pub(super) fn push(&self, line: Line, durable: bool) {
        let mut state = self.lock();
        let max = if durable { QUEUE_LINES + DURABLE_LINES } else { QUEUE_LINES };
        if state.lines.len() < max {
            state.lines.push_back(line);
        } else {
            state.dropped += 1;
        }
        let awake = state.writing;
        drop(state);
        if !awake {
            self.changed.notify_all();
        }
    }

    /// What is queued, or was just written, is to be put on stable storage.
    pub(super) fn sync(&self) {
        self.lock().sync = true;
        self.changed.notify_all();
    }

    /// Waits until everything queued is written, but no longer than `limit`. Whether it was.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let start = Instant::now();
        let mut state = self.lock();
        state.flushing += 1;
        self.changed.notify_all();
        while state.has_work() || state.writing {
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                break;
            }
            state = self.wait(state, left);
        }
        state.flushing -= 1;
        !state.has_work() && !state.writing
    }

    /// Lets the writer end once it has written what is queued.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Lines waiting, and lines dropped since the writer last could write.
    pub(super) fn waiting(&self) -> (usize, u64) {
        let state = self.lock();
        (state.lines.len(), state.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn line(text: String) -> Line {
        Line { level: Level::Error, text: text.into() }
    }

    #[test]
    fn what_is_being_written_is_waited_for_from_the_first_line_on() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let sink = Sink { place: Place::File(File::from(writer)), priority: 7 };
        let queue = Arc::new(Queue::default());
        // More than fits into the pipe, and there before the writer is.
        let long = "x".repeat(1 << 20);
        queue.push(line(long.clone()), false);
        queue.start(sink, |_| line(String::new())).unwrap();
        let begin = Instant::now();
        while queue.waiting().0 > 0 {
            assert!(begin.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!queue.flush(Duration::from_millis(50)), "nobody has read it");
        let mut reader = File::from(reader);
        let mut got = vec![0; long.len()];
        reader.read_exact(&mut got).unwrap();
        assert!(queue.flush(Duration::from_secs(20)));
        queue.close();
    }
}
