//! Each command line against each daemon: the recorded walk-through with mixed programs.

use sanlock_conformance::{Program, bounded, walkthrough};

#[test]
fn the_stock_command_line_works_with_our_daemon() {
    if Program::both_available() {
        walkthrough::two_hosts(Program::Ours, Program::Ours, Program::Reference);
    }
}

#[test]
fn our_command_line_works_with_the_stock_daemon() {
    if Program::both_available() {
        walkthrough::two_hosts(Program::Reference, Program::Reference, Program::Ours);
    }
}

#[test]
fn our_daemon_and_the_stock_one_share_a_lockspace_under_either_command_line() {
    if !Program::both_available() {
        return;
    }
    bounded::side_by_side(vec![
        (
            "our daemon first".into(),
            Box::new(|| walkthrough::two_hosts(Program::Ours, Program::Reference, Program::Reference)),
        ),
        (
            "the stock daemon first".into(),
            Box::new(|| walkthrough::two_hosts(Program::Reference, Program::Ours, Program::Ours)),
        ),
    ]);
}
