//! The command line's walk-through, compared with recordings of the original.

use sanlock_conformance::{Program, walkthrough};

#[test]
fn option_mistakes_get_the_recorded_messages() {
    let Some(program) = Program::under_test() else { return };
    walkthrough::usage_errors(program);
}

#[test]
fn without_a_daemon_clients_complain_and_direct_actions_work() {
    let Some(program) = Program::under_test() else { return };
    walkthrough::without_daemon(program);
}

#[test]
fn two_hosts_join_contend_and_leave_as_recorded() {
    let Some(program) = Program::under_test() else { return };
    walkthrough::two_hosts(program, program, program);
}
