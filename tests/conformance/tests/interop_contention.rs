//! Many processes on hosts of both programs fight for one lease; never may two hold it.

use sanlock_conformance::fair::{self, LEAST_MIXED, LEAST_REFERENCE, LEAST_REFERENCES};
use sanlock_conformance::{Program, contention};

const SECONDS: u64 = 60;

#[test]
fn two_hosts_of_each_program_never_hold_one_lease_together() {
    if !Program::both_available() {
        return;
    }
    let programs = [Program::Ours, Program::Reference, Program::Ours, Program::Reference];
    let tallies = contention::fight(&programs, SECONDS, LEAST_REFERENCE);
    let of = |wanted: Program| {
        let both = programs.iter().zip(&tallies).filter(move |(program, _)| **program == wanted);
        both.map(|(_, tally)| tally.granted)
    };
    let all: u64 = tallies.iter().map(|tally| tally.granted).sum();
    for granted in of(Program::Ours) {
        assert!(granted * 400 >= all * LEAST_MIXED, "a host of ours starved: {granted} of {all}");
    }
    let together = of(Program::Reference).sum::<u64>();
    eprintln!(
        "the original's hosts together: {:?} % of a fair share",
        fair::shares(&[together, all - together])[0]
    );
    assert!(together * 200 >= all * LEAST_REFERENCES, "the original's hosts starved: {together} of {all}");
}
