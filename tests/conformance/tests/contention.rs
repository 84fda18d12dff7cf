//! Many processes on hosts of one program fight for one lease; never may two hold it.

use sanlock_conformance::{Program, contention, fair};

const SECONDS: u64 = 20;

/// The original is not known for its fairness.
fn least(program: Program) -> u64 {
    if program == Program::Ours { fair::LEAST_OURS } else { 1 }
}

#[test]
fn four_hosts_never_hold_one_lease_together() {
    let Some(program) = Program::under_test() else { return };
    contention::fight(&[program; 4], SECONDS, least(program));
}

#[test]
fn processes_of_one_host_never_hold_one_lease_together() {
    let Some(program) = Program::under_test() else { return };
    contention::fight(&[program], SECONDS / 2, least(program));
}
