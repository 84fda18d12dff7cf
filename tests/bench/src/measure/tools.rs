//! The tools that need no daemon: `direct init` and `direct dump`.

use std::process::{Command, Stdio};
use std::time::Instant;

use sanlock_conformance::Program;

use super::Setting;
use crate::place::Place;
use crate::row::{Row, Unit};

/// Runs the measure.
#[must_use]
pub fn run(setting: &Setting) -> Vec<Row> {
    // On 4096-byte sectors an area is 8 MiB: a thousand of them would mostly measure how fast the disk can be filled.
    let large = if setting.place == crate::PlaceKind::Loop4096 { 100 } else { 1000 };
    let sizes = setting.pick(vec![1, 20], if large == 100 { vec![1, 100] } else { vec![1, 100, 1000] });
    let Some(place) = sizes.last().and_then(|most| setting.place(most + 1)) else { return Vec::new() };
    sizes.into_iter().flat_map(|leases| measure(setting, &place, leases)).collect()
}

fn measure(setting: &Setting, place: &Place, leases: u64) -> Vec<Row> {
    let mut init = [Vec::new(), Vec::new()];
    let mut dump = [Vec::new(), Vec::new()];
    let rounds = if leases >= 1000 { 1 } else { setting.pick(2, 10) };
    for _ in 0..rounds {
        for (n, program) in [Program::Reference, Program::Ours].into_iter().enumerate() {
            init[n].push(seconds(|| {
                let lockspace = format!("BENCH:0:{}:0", place.path());
                direct(program, &["init", "-s", &lockspace]);
                for area in 1..=leases {
                    let resource = format!("BENCH:R{area}:{}:{}", place.path(), area * place.align());
                    direct(program, &["init", "-r", &resource]);
                }
            }));
            let area = format!("{}:0:{}", place.path(), (leases + 1) * place.align());
            dump[n].push(seconds(|| direct(program, &["dump", &area])));
        }
    }
    let [original_init, our_init] = init;
    let [original_dump, our_dump] = dump;
    let row = |name, original, ours| {
        Row::new(name, Unit::Seconds, original, ours).sized(leases, "leases").not_slower()
    };
    vec![row("direct init", original_init, our_init), row("direct dump", original_dump, our_dump)]
}

fn seconds(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64()
}

fn direct(program: Program, args: &[&str]) {
    let mut command = Command::new(program.path());
    command.arg("direct").args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().unwrap_or_else(|error| panic!("{}: {error}", program.word()));
    assert!(status.success(), "{}: direct {args:?} ended with {status}", program.word());
}
