//! Many processes on hosts of one program fight for one lease; never may two hold it.

use sanlock_conformance::{Program, contention};

const SECONDS: u64 = 20;

#[test]
fn four_hosts_never_hold_one_lease_together() {
    let Some(program) = Program::under_test() else { return };
    contention::fight(&[program; 4], SECONDS);
}

#[test]
fn processes_of_one_host_never_hold_one_lease_together() {
    let Some(program) = Program::under_test() else { return };
    contention::fight(&[program], SECONDS / 2);
}
