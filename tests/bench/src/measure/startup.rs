//! From the start of a daemon until it answers.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use sanlock_conformance::host::{daemon_args, daemon_environment, pid_of};
use sanlock_conformance::storage::scratch_dir;
use sanlock_conformance::{Connection, Program};

use super::Setting;
use crate::row::{Row, Unit};
use crate::site::OPTIONS;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_micros(50);

/// Longest wait for the first answer, and for the end.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs the measure.
#[must_use]
pub fn run(setting: &Setting) -> Vec<Row> {
    let mut times = [Vec::new(), Vec::new()];
    let mut turns = [(Program::Reference, 0), (Program::Ours, 1)];
    for _ in 0..setting.pick(3, 40) {
        for (program, index) in turns {
            times[index].push(start(program));
        }
        // Neither is always the one after the other.
        turns.reverse();
    }
    let [original, ours] = times;
    let row = Row::new("start of the daemon", Unit::Millis, original, ours).not_slower();
    vec![row.noting("before the first answer all memory is touched and locked, in both")]
}

/// Milliseconds until a new daemon has answered its first request.
fn start(program: Program) -> f64 {
    let dir = scratch_dir("run");
    let begin = Instant::now();
    let daemon = Daemon::start(program, dir.path());
    let answers = || Connection::open(dir.path()).is_ok_and(|mut connection| connection.version().is_ok());
    while !answers() {
        assert!(begin.elapsed() < LIMIT, "{}: no answer", program.word());
        thread::sleep(PAUSE);
    }
    let answered = begin.elapsed();
    daemon.end();
    answered.as_secs_f64() * 1e3
}

/// A daemon that was started by nobody in between: a program that starts it would be part of the time.
struct Daemon(Child);

impl Daemon {
    fn start(program: Program, run_dir: &Path) -> Self {
        let child = Command::new(program.path())
            .args(daemon_args(false, "host1", &OPTIONS))
            .envs(daemon_environment(run_dir))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap_or_else(|error| panic!("cannot start the {} daemon: {error}", program.word())))
    }

    /// In order, so that nothing of it is left when the next one is started.
    fn end(mut self) {
        assert_eq!(kill(pid_of(self.0.id()), Signal::SIGTERM), Ok(()));
        let begin = Instant::now();
        while self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            assert!(begin.elapsed() < LIMIT, "the daemon does not end");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Nothing is left to do where it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
