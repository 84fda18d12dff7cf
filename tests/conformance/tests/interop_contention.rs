//! Many processes on hosts of both programs fight for one lease; never may two hold it.

use sanlock_conformance::{Program, contention, fair};

const SECONDS: u64 = 60;

#[test]
fn two_hosts_of_each_program_never_hold_one_lease_together() {
    if !Program::both_available() {
        return;
    }
    let programs = [Program::Ours, Program::Reference, Program::Ours, Program::Reference];
    contention::fight(&programs, SECONDS, fair::LEAST_MIXED);
}
