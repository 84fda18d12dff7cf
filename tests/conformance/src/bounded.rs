//! Waiting with a limit, and running programs with a limit.
//!
//! Output goes to files, not pipes: a descendant that keeps the descriptors open cannot delay the
//! reader, and a program that writes much cannot block.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Pause between two looks at a condition.
const POLL_PAUSE: Duration = Duration::from_millis(10);

/// Limit for a client command that needs at most a few disk operations and one poll of the daemon.
pub const CLIENT_LIMIT: Duration = Duration::from_secs(30);

/// Calls `look` until it returns something.
///
/// # Panics
/// After `limit`, naming `what`.
pub fn poll_for<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < limit, "waited {limit:?} in vain for: {what}");
        thread::sleep(POLL_PAUSE);
    }
}

/// Calls `condition` until it is true.
///
/// # Panics
/// After `limit`, naming `what`.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    poll_for(what, limit, || condition().then_some(()));
}

/// Runs parts of a slow case side by side, each in a thread of its own, and waits for all.
///
/// # Panics
/// When a part panics, naming all that did.
pub fn side_by_side(parts: Vec<(String, Box<dyn FnOnce() + Send>)>) {
    let threads: Vec<_> = parts.into_iter().map(|(name, part)| (name, thread::spawn(part))).collect();
    let failed: Vec<String> =
        threads.into_iter().filter_map(|(name, thread)| thread.join().is_err().then_some(name)).collect();
    assert!(failed.is_empty(), "failed: {failed:?}; the messages are above");
}

/// What a finished program left behind.
#[derive(Debug, Clone)]
pub struct Output {
    /// The command line, for messages.
    pub command: String,
    /// Exit status; 128 + signal number when a signal ended the program.
    pub code: i32,
    /// Everything written to standard output.
    pub stdout: String,
    /// Everything written to standard error.
    pub stderr: String,
    /// Wall time from start to end.
    pub took: Duration,
}

impl Output {
    /// Asserts exit status 0.
    ///
    /// # Panics
    /// When the status is another one; shows both streams.
    #[track_caller]
    pub fn success(self) -> Self {
        assert!(self.code == 0, "expected exit status 0: {self}");
        self
    }

    /// The number after `done ` or `error ` in standard output, if any.
    #[must_use]
    pub fn result(&self) -> Option<i64> {
        let words: Vec<&str> = self.stdout.split_whitespace().collect();
        words
            .windows(2)
            .filter(|pair| matches!(pair[0], "done" | "error"))
            .filter_map(|pair| pair[1].parse().ok())
            .next_back()
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "`{}` exited with {} after {:?}", self.command, self.code, self.took)?;
        writeln!(f, "--- stdout\n{}--- stderr\n{}", self.stdout, self.stderr)
    }
}

/// A program that was started and has not been waited for. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    command: String,
    child: Child,
    stdout: File,
    stderr: File,
    begin: Instant,
}

impl Running {
    /// Starts `command` with its output going to files.
    ///
    /// # Panics
    /// When the program cannot be started.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        let text = describe(&command);
        let stdout = scratch_file();
        let stderr = scratch_file();
        let child = command
            .stdin(Stdio::null())
            .stdout(clone_of(&stdout))
            .stderr(clone_of(&stderr))
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start `{text}`: {error}"));
        Self { command: text, child, stdout, stderr, begin: Instant::now() }
    }

    /// Process id of the program.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the program has ended.
    pub fn ended(&mut self) -> bool {
        self.try_status().is_some()
    }

    /// Sends SIGKILL and waits for the end. Does nothing to a program that has ended.
    pub fn kill(&mut self) {
        // Both fail only for a child that has been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// After `limit`, counted from now; the program is killed.
    pub fn finish(&mut self, limit: Duration) -> Output {
        let asked = Instant::now();
        loop {
            if let Some(status) = self.try_status() {
                return self.output(status);
            }
            if asked.elapsed() > limit {
                self.kill();
                let so_far = self.output(ExitStatus::from_raw(9));
                panic!("did not end within {limit:?}: {so_far}");
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn try_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap_or_else(|error| panic!("waiting for `{}`: {error}", self.command))
    }

    /// Standard output and standard error so far.
    #[must_use]
    pub fn text(&self) -> (String, String) {
        (contents(&self.stdout), contents(&self.stderr))
    }

    fn output(&self, status: ExitStatus) -> Output {
        let (stdout, stderr) = self.text();
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Output { command: self.command.clone(), code, stdout, stderr, took: self.begin.elapsed() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs `command` to its end.
///
/// # Panics
/// When it does not end within `limit` or cannot be started.
#[must_use]
pub fn run(command: Command, limit: Duration) -> Output {
    Running::start(command).finish(limit)
}

/// A command that dies with the thread that starts it, so that nothing outlives a killed test.
#[must_use]
pub fn dying_with_us(program: &std::path::Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

fn describe(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}

fn scratch_file() -> File {
    tempfile::tempfile().unwrap_or_else(|error| panic!("cannot make a scratch file: {error}"))
}

fn clone_of(file: &File) -> File {
    file.try_clone().unwrap_or_else(|error| panic!("cannot duplicate a descriptor: {error}"))
}

/// Reads by position: the child shares the file offset and may still write.
fn contents(file: &File) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 8192];
    loop {
        match file.read_at(&mut piece, bytes.len() as u64) {
            Ok(0) => return String::from_utf8_lossy(&bytes).into_owned(),
            Ok(length) => bytes.extend(&piece[..length]),
            Err(error) => panic!("cannot read captured output: {error}"),
        }
    }
}
