//! Writes of our sector that end with an error which does not exclude that they have an effect later.

use super::*;
use crate::code::ReturnCode;
use crate::delta::renew::{RenewFailure, RenewOutcome, Renewal};
use crate::delta::{DeltaRelease, JoinError, LeaveError};
use crate::machine::{Action, Content, IoFailure};
use crate::testing::{Fate, Traced};

const EIO: IoFailure = IoFailure::Os(5);
/// 8T + F in seconds.
const DOUBT: u64 = 68;

/// A joined lockspace, and its renewals, of which the first fails in doubt and lands so many milliseconds later.
fn joined_and_failed(lands_ms: Option<u64>) -> (Lab, Renewal) {
    let mut lab = lab();
    let joined = join(&mut lab);
    let mut renewal = Renewal::new(config(), &joined);
    lab.another_machine();
    assert!(lab.pass(&mut renewal, 0).is_none());
    lab.fates(move |op| if op.is_write() { Fate::in_doubt(EIO, lands_ms) } else { Fate::prompt() });
    lab.now = lab.now.max(renewal.due());
    let failed = lab.rerun(&mut renewal);
    let outcome = RenewOutcome::Failed(RenewFailure::Write(EIO));
    assert_eq!((failed.outcome, failed.outstanding), (outcome, 1));
    lab.no_faults();
    (lab, renewal)
}

fn attempt(lab: &mut Lab, renewal: &mut Renewal) -> RenewOutcome {
    let wait = renewal.due().millis_since(lab.now).div_ceil(1000);
    lab.pass(renewal, wait);
    lab.rerun(renewal).outcome
}

fn is_renewed(outcome: RenewOutcome) -> bool {
    matches!(outcome, RenewOutcome::Renewed(_))
}

/// One error must not end a lockspace: neither by keeping the next renewal from being written, nor by its record that comes back over a
/// newer one.
#[test]
fn renewals_go_on_beside_a_write_in_doubt_and_know_it_when_it_lands() {
    let (mut lab, mut renewal) = joined_and_failed(Some(7_500));
    let failed = lab.now;
    let mut came_back = false;
    while lab.now.secs_since(failed) < DOUBT + 10 {
        let known = record(&lab, 1).timestamp.get();
        assert!(is_renewed(attempt(&mut lab, &mut renewal)), "{:?}", lab.now);
        let at = lab.trace.iter().rev().find(|t| !t.op.is_write()).unwrap().at;
        came_back |= known < failed.secs() && at.secs_since(failed) > 5;
    }
    assert!(renewal.last_good() > failed);
    assert!(!renewal.write_outstanding());
    assert!(came_back || record(&lab, 1).timestamp.get() > failed.secs());
}

/// Others reckon from the moment at which they see a change. If a record that they have seen came back over one that they have not, they
/// would reckon from before it was renewed.
#[test]
fn what_comes_back_is_not_what_others_have_seen() {
    let (mut lab, mut renewal) = joined_and_failed(Some(DOUBT * 1000 - 1));
    for _ in 0..3 {
        // Within the second of the write in doubt, too.
        assert!(is_renewed(lab.rerun(&mut renewal).outcome));
        assert!(is_renewed(attempt(&mut lab, &mut renewal)));
    }
    let timestamp = |t: &Traced| match &t.op.action {
        Action::Write { content: Content::Delta { leader, .. }, .. } => Some(leader.timestamp.get()),
        _ => None,
    };
    let written: Vec<_> = lab.trace.iter().filter_map(timestamp).collect();
    assert!(written.len() >= 8 && written.is_sorted_by(|a, b| a < b), "{written:?}");
}

/// What is there then is looked at as closely as ever.
#[test]
fn a_change_is_seen_once_the_write_has_settled_and_another_has_succeeded() {
    let (mut lab, mut renewal) = joined_and_failed(None);
    let somebody = |lab: &mut Lab| edit(lab, 1, |l| l.timestamp = 1.into());
    somebody(&mut lab);
    assert!(is_renewed(attempt(&mut lab, &mut renewal)), "it might be the write in doubt");
    lab.pass(&mut renewal, DOUBT);
    somebody(&mut lab);
    assert!(is_renewed(attempt(&mut lab, &mut renewal)), "it may have landed just before it settled");
    somebody(&mut lab);
    match attempt(&mut lab, &mut renewal) {
        RenewOutcome::Corrupt(corrupt) => assert_eq!(ReturnCode::from(&corrupt).0, -261),
        other => panic!("{other:?}"),
    }
}

/// A write that began beside the one in doubt may have reached the disk before it, although it is the later one to end.
#[test]
fn a_renewal_begun_in_doubt_and_ended_after_it_is_no_proof() {
    let (mut lab, mut renewal) = joined_and_failed(Some(DOUBT * 1000 - 500));
    lab.pass(&mut renewal, DOUBT - 1);
    let slow = Fate { lands_ms: Some(0), ..Fate::after(2_000) };
    lab.fates(move |op| if op.is_write() { slow } else { Fate::prompt() });
    let begun = lab.now;
    let renewed = lab.rerun(&mut renewal);
    assert!(is_renewed(renewed.outcome) && renewed.outstanding == 0, "it settled meanwhile");
    lab.no_faults();
    assert!(record(&lab, 1).timestamp.get() < begun.secs(), "what was in doubt came over it");
    assert!(is_renewed(attempt(&mut lab, &mut renewal)), "the record of this instance is ours");
    edit(&mut lab, 1, |l| l.timestamp = 1.into());
    assert!(
        matches!(attempt(&mut lab, &mut renewal), RenewOutcome::Corrupt(_)),
        "as closely as ever after that"
    );
}

/// A release that is overtaken by a renewal would leave a record that looks alive, over what the next owner may have written.
#[test]
fn a_host_id_is_not_freed_beside_a_write_in_doubt() {
    let (mut lab, mut renewal) = joined_and_failed(None);
    assert!(is_renewed(attempt(&mut lab, &mut renewal)));
    assert!(renewal.release().is_none());
    lab.pass(&mut renewal, DOUBT);
    assert!(renewal.release().is_some());
}

/// It may have landed over the record of another machine that was given the same host id.
#[test]
fn our_record_is_no_proof_beside_a_write_in_doubt_that_may_land_when_others_take_the_host_id() {
    let (mut lab, mut renewal) = joined_and_failed(None);
    let end = renewal.last_good().plus_secs(DOUBT);
    assert_eq!(renewal.sole_if_ended_before(), Some(end));
    lab.pass(&mut renewal, DOUBT + 1);
    assert_eq!(renewal.sole_if_ended_before(), Some(MonoTime::default()), "it settled too late for that");

    // Renewed meanwhile, others may take it only later.
    let (mut lab, mut renewal) = joined_and_failed(None);
    assert!(is_renewed(attempt(&mut lab, &mut renewal)));
    lab.pass(&mut renewal, DOUBT);
    assert_eq!(renewal.sole_if_ended_before(), None);
}

#[test]
fn the_write_of_a_join_or_of_a_leave_in_doubt_is_outstanding() {
    let mut lab = lab();
    lab.fates(|op| if op.is_write() { Fate::in_doubt(EIO, Some(30_000)) } else { Fate::prompt() });
    let mut machine = DeltaAcquire::new(config(), None);
    let finished = lab.run(&mut machine);
    assert_eq!((finished.outcome, finished.outstanding), (Err(JoinError::Write(EIO)), 1));
    lab.pass(&mut machine, DOUBT);

    lab.no_faults();
    edit(&mut lab, 1, |l| l.timestamp = 0.into());
    let joined = join(&mut lab);
    lab.fates(|op| if op.is_write() { Fate::in_doubt(EIO, None) } else { Fate::prompt() });
    let mut leave = DeltaRelease::new(config(), joined.geometry, joined.leader, joined.last_good);
    let finished = lab.run_noisy(&mut leave);
    assert_eq!((finished.outcome, finished.outstanding), (Err(LeaveError::Write(EIO)), 1));
}
