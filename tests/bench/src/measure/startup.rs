//! From the start of a daemon until it answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sanlock_conformance::storage::scratch_dir;
use sanlock_conformance::{Connection, Host, Program};

use super::Setting;
use crate::row::{Row, Unit};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_micros(200);

/// Runs the measure.
#[must_use]
pub fn run(setting: &Setting) -> Vec<Row> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..setting.pick(3, 20) {
        for (program, times) in [Program::Reference, Program::Ours].into_iter().zip(&mut times) {
            times.push(start(program));
        }
    }
    let [original, ours] = times;
    let row = Row::new("start of the daemon", Unit::Millis, original, ours).not_slower();
    vec![row.noting("before the first answer all memory is touched and locked: a larger program, and 4 MiB of heap that are kept ready")]
}

/// Milliseconds until a new daemon has answered its first request.
fn start(program: Program) -> f64 {
    let dir = scratch_dir("run");
    let path = dir.path().to_owned();
    let given_up = AtomicBool::new(false);
    let begin = Instant::now();
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            // The host itself looks less often.
            while !given_up.load(Ordering::Relaxed) {
                if Connection::open(&path).is_ok_and(|mut connection| connection.version().is_ok()) {
                    return Some(begin.elapsed());
                }
                thread::sleep(PAUSE);
            }
            None
        });
        let host = Host::start_in(dir, program, "host1", &[]);
        // It answers, so the other has its answer soon; after a long time it never will.
        while !looking.is_finished() && begin.elapsed() < Duration::from_secs(20) {
            thread::sleep(PAUSE);
        }
        given_up.store(true, Ordering::Relaxed);
        let answered = looking.join().ok().flatten();
        drop(host);
        answered.unwrap_or_else(|| panic!("{}: no answer", program.word())).as_secs_f64() * 1e3
    })
}
