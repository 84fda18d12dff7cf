//! Schedules of several disks, and of slow commits, played by hand: which of two machines' operations comes first, and on which disk.

use super::disks::{block_on, disk, lab3, leader_on, three};
use super::*;
use crate::machine::{Action, Env, Input, Machine, NoSectors, Step};
use crate::paxos::acquire::Mode;
use crate::paxos::convert::PaxosConvert;
use crate::paxos::ops::Ops;
use crate::paxos::share::PaxosShare;

/// One machine, driven round by round.
struct Player<M: Machine> {
    machine: M,
    ops: Vec<Op>,
    /// It waits for a time to come.
    waits: bool,
}

impl<M: Machine> Player<M> {
    fn new(machine: M) -> Self {
        Self { machine, ops: Vec::new(), waits: false }
    }

    fn input(&mut self, lab: &Lab, input: Input<'_>) -> Option<M::Outcome> {
        let env = Env {
            lockspace: LockspaceNow::Alive { generation: 1 },
            client_alive: true,
            shutting_down: false,
            hosts: &*lab.hosts,
        };
        match self.machine.step(lab.now, &env, input) {
            Step::Io(ops) => {
                self.ops = ops.into_iter().collect();
                None
            }
            Step::Pending => None,
            Step::Wait(_) => {
                self.waits = true;
                None
            }
            Step::Done { outcome, .. } => Some(outcome),
        }
    }

    fn start(&mut self, lab: &Lab) {
        assert!(self.input(lab, Input::Start).is_none());
    }

    /// The writes under way land on this disk only, for now.
    fn land_on(&self, lab: &mut Lab, place: Place) {
        for op in self.ops.iter().filter(|op| op.place == place) {
            if let Action::Write { sector, content } = &op.action {
                put(lab, op.place, *sector, content.clone());
            }
        }
    }

    /// The round under way takes effect and ends.
    fn go(&mut self, lab: &mut Lab) -> Option<M::Outcome> {
        let mut done = None;
        for op in std::mem::take(&mut self.ops) {
            done = match &op.action {
                Action::Write { sector, content } => {
                    put(lab, op.place, *sector, content.clone());
                    self.input(lab, Input::Completed { op: op.id, result: Ok(&NoSectors) })
                }
                Action::Read { first, count } => {
                    let view = lab.disk.view(op.place, op.sector_size, *first, *count).unwrap();
                    self.input(lab, Input::Completed { op: op.id, result: Ok(&view) })
                }
            };
        }
        done
    }

    /// Round by round, to the end.
    fn end(&mut self, lab: &mut Lab) -> M::Outcome {
        loop {
            if let Some(outcome) = self.go(lab) {
                return outcome;
            }
        }
    }
}

/// Three disks with this leader, and host 1 alive.
fn lab_of(leader: RawLeader) -> Lab {
    let mut lab = lab3([leader; 3]);
    host_1_lives(&mut lab);
    lab
}

fn host_1_lives(lab: &mut Lab) {
    lab.hosts = seen(1, 1, 800, 990, 990);
}

/// What matches fails from now on.
fn failing(lab: &mut Lab, which: impl Fn(&Op) -> bool + 'static) {
    lab.fates(move |op| if which(op) { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() });
}

/// Host 2 takes it exclusively.
fn taken_by_2(lab: &mut Lab) -> bool {
    let two = PaxosConfig { host: host(2), ..three() };
    let outcome = lab.run(&mut PaxosAcquire::new(two, AcquireOptions::default())).outcome;
    assert!(!matches!(&outcome, AcquireOutcome::Acquired(held) if held.is_shared()));
    matches!(outcome, AcquireOutcome::Acquired(_))
}

/// The same; after its look at host 1's block it loses disk 0.
fn taken_by_2_that_loses_disk_0(lab: &mut Lab) -> bool {
    failing(lab, |op| op.place == disk(0) && !matches!(op.action, Action::Read { count: 1, .. }));
    taken_by_2(lab)
}

/// Host 1 shares the lease.
fn shared_by_1(lab: &mut Lab) -> Held {
    let done = lab.run(&mut PaxosShare::new(three(), AcquireOptions::default(), 8));
    let AcquireOutcome::Acquired(share) = done.outcome else { panic!("{:?}", done.outcome) };
    share
}

#[test]
fn a_flag_on_one_disk_without_the_mode_block_on_a_majority() {
    // Host 1 has won version 5 on its way to a shared hold; host 3's slow commit in its name has landed too.
    let named = leader(5, Owner { writer: 3, ..owned_by(1, 1) });
    let mut lab = lab_of(named);
    let own = block([1, 1, 1, 1, 500, 5]);
    (0..3).for_each(|n| put(&mut lab, disk(n), 2, Content::Block(own)));
    let held1 = Held { leader: leader(5, owned_by(1, 1)), block: own, geometry: Geometry::B512_M1 };
    let mut share = Player::new(PaxosRelease::to_shared(three(), held1).with_ops(Ops::of(&three())));
    share.start(&lab);
    share.land_on(&mut lab, disk(0)); // the other two take a little longer
    let exclusive = taken_by_2_that_loses_disk_0(&mut lab);
    // Host 1's writes end, all well within its io timeout.
    let shared = share.end(&mut lab);
    assert!(!(exclusive && shared.result.is_ok()), "an exclusive owner beside a shared one");
}

#[test]
fn the_same_on_the_whole_way_to_a_shared_hold() {
    let mut lab = lab_of(leader(4, NOBODY));
    let mut share = Player::new(PaxosShare::new(three(), AcquireOptions::default(), 8));
    share.start(&lab);
    for _ in 0..6 {
        assert!(share.go(&mut lab).is_none()); // first read ... commit
    }
    // Host 3 had found the value in its ballot; its commit is slow by itself.
    let named = {
        let mut named = leader_on(&lab, 0);
        named.write_id = 3.into();
        named.flags = 0x10.into();
        named.seal();
        named
    };
    (0..3).for_each(|n| put(&mut lab, disk(n), 0, Content::Leader(named)));
    share.land_on(&mut lab, disk(0));
    let exclusive = taken_by_2_that_loses_disk_0(&mut lab);
    let shared = share.end(&mut lab);
    let sharing = matches!(shared, AcquireOutcome::Acquired(h) if h.is_shared());
    assert!(!(exclusive && sharing), "an exclusive owner beside a shared one");
}

/// Decision 0019. Were 8 taken with three hosts, as was asked for, host 2 would not look at host 5, and both would own version 9.
#[test]
fn a_number_of_hosts_that_is_not_lowered_and_two_slow_commits() {
    let numbered = |hosts: u64, mut leader: RawLeader| {
        leader.num_hosts = hosts.into();
        leader.seal();
        leader
    };
    let by = |id, timestamp, writer| Owner { id, generation: 1, timestamp, writer };
    // Host 1 has had 5 (3 hosts), 6 (asked for 8), 7, and 8 (asked for 3, in vain), and has released that.
    let mut lab = lab(numbered(8, leader(8, by(1, 0, 1))));
    host_1_lives(&mut lab);
    put_block(&mut lab, 1, released(block([2001, 2001, 1, 1, 500, 8])));
    put_block(&mut lab, 3, block([2003, 2003, 1, 1, 400, 5]));
    put_block(&mut lab, 6, block([2006, 2006, 1, 1, 480, 7]));

    let mut two = Player::new(PaxosAcquire::new(config(2), AcquireOptions::default()));
    two.start(&lab);
    assert!(two.go(&mut lab).is_none()); // leader 8, free, 8 hosts

    put_leader(&mut lab, numbered(8, leader(7, by(1, 480, 6)))); // host 6's slow commit of 7
    lab.run(&mut PaxosAcquire::new(config(5), AcquireOptions::default()));
    let mut five = Player::new(PaxosAcquire::new(config(5), AcquireOptions::default()));
    five.start(&lab);
    while !matches!(five.ops.first(), Some(Op { action: Action::Write { sector: 0, .. }, .. })) {
        assert!(five.go(&mut lab).is_none());
    }
    put_leader(&mut lab, numbered(3, leader(5, by(1, 400, 3)))); // host 3's slow commit of 5

    let mut done2 = None;
    while done2.is_none() && !two.waits {
        done2 = two.go(&mut lab);
    }
    let done5 = five.go(&mut lab).unwrap();
    let own = |o: &AcquireOutcome| matches!(o, AcquireOutcome::Acquired(_));
    assert!(own(&done5) && !done2.is_some_and(|done| own(&done)), "host 2 gives way");
}

#[test]
fn a_mode_block_left_on_a_disk_that_was_away() {
    let mut lab = lab_of(leader(4, NOBODY));
    let share = shared_by_1(&mut lab);
    // Disk 2 is away while host 1 lets go.
    failing(&mut lab, |op| op.place == disk(2));
    lab.run(&mut PaxosRelease::new(three(), share));
    let again = PaxosRelease::retract(three(), Geometry::B512_M1).of_hold(Some(share.block));
    let out = lab.run(&mut again.clone());
    assert!(!out.outcome.needs_retract());
    // It is back.
    lab.no_faults();
    assert!(taken_by_2(&mut lab), "nobody holds it");
}

#[test]
fn the_same_after_a_conversion() {
    let mut lab = lab_of(leader(4, NOBODY));
    let share = shared_by_1(&mut lab);
    failing(&mut lab, |op| op.place == disk(2));
    let up = crate::paxos::PaxosConvert::to_exclusive(three(), AcquireOptions::default(), share);
    let up = lab.run(&mut up.clone()).outcome;
    assert_eq!((up.result, up.held.is_shared()), (Ok(()), false));
    let out = lab.run(&mut PaxosRelease::new(three(), up.held));
    assert!(!out.outcome.needs_retract());
    lab.no_faults();
    assert!(taken_by_2(&mut lab), "nobody holds it");
}

#[test]
fn a_retract_that_raised_the_ballot_number_does_nothing_the_next_time() {
    let mut lab = lab3([leader(1, owned_by(US, 1)); 3]);
    for other in 0..3 {
        let copy = if other == 2 { block([6001, 0, 0, 0, 0, 1]) } else { block([4001, 4001, US, 1, 500, 1]) };
        put(&mut lab, disk(other), 2, Content::Block(copy));
    }
    let again =
        PaxosRelease::retract(three(), Geometry::B512_M1).of_hold(Some(block([4001, 4001, US, 1, 500, 1])));
    // The block is written, the leader is not.
    failing(&mut lab, |op| matches!(op.action, Action::Write { sector: 0, .. }));
    let out = lab.run(&mut again.clone());
    assert!(out.outcome.needs_retract());
    lab.no_faults();
    lab.run(&mut again.clone());
    assert!(!state(&leader_on(&lab, 0)).2, "the lease stays owned");
}

/// What takes back a failed conversion raises it too, under the hold, which is given up later.
#[test]
fn a_shared_hold_whose_ballot_number_was_raised_is_given_up_all_the_same() {
    let mut lab = lab_of(leader(4, NOBODY));
    // A conversion got no further than its number, and disk 2 was away; it has a larger one, from before.
    let ours = HostBlock { mode: ModeBlock::shared(1), ..block([4001, 0, 0, 0, 0, 5]) };
    let before = block([6001, 0, 0, 0, 0, 4]);
    (0..3).for_each(|n| put(&mut lab, disk(n), 2, Content::Block(if n == 2 { before } else { ours })));
    let held = Held { leader: leader(4, NOBODY), block: ours, geometry: Geometry::B512_M1 };
    let erased = lab.run(&mut PaxosConvert::erase(three(), held)).outcome;
    assert_eq!((erased.result, erased.erase, erased.held.is_shared()), (Ok(()), false, true));
    assert_eq!(erased.held.block, block_on(&lab, 0, 1), "what is on the disks is known");
    // The first release cannot be written anywhere.
    failing(&mut lab, |op| matches!(op.action, Action::Write { .. }));
    let hold = erased.held.block;
    assert!(lab.run(&mut PaxosRelease::new(three(), erased.held)).outcome.needs_retract());
    lab.no_faults();
    let again = PaxosRelease::retract(three(), Geometry::B512_M1).of_hold(Some(hold));
    assert!(!lab.run(&mut again.clone()).outcome.needs_retract());
    assert!(taken_by_2(&mut lab), "nobody holds it");
}

#[test]
fn a_mark_from_before_with_a_larger_ballot_number() {
    // Version 4 is left in host 1's name by host 3's slow commit, after host 1 has let it go.
    let mut lab = lab_of(leader(4, Owner { writer: 3, ..owned_by(1, 1) }));
    let old = released(block([1, 1, 1, 1, 500, 4]));
    (0..3).for_each(|n| put(&mut lab, disk(n), 2, Content::Block(old)));
    // Two attempts of host 1 whose writes reach disk 2 alone, and what is taken back after each.
    failing(&mut lab, |op| op.is_write() && op.place != disk(2));
    for _ in 0..2 {
        let done = acquire_as(&mut lab, three(), AcquireOptions::default());
        assert!(failure(&done).2);
        for _ in 0..3 {
            let out = lab.run(&mut PaxosRelease::retract(three(), Geometry::B512_M1));
            if !out.outcome.needs_retract() {
                break;
            }
        }
    }
    // The other two are well again, disk 2 is away: host 1 takes the lease.
    failing(&mut lab, |op| op.place == disk(2));
    let one = acquire_as(&mut lab, three(), AcquireOptions::default());
    assert_eq!(held(&one).lver(), 5);
    // Disk 2 is back; host 2 has lost disk 0.
    failing(&mut lab, |op| op.place == disk(0));
    assert!(!taken_by_2(&mut lab), "two owners");
}

/// An acquire whose value reaches disk 0 alone: what of it is to be taken back.
fn value_on_disk_0_alone(lab: &mut Lab) -> (Option<HostBlock>, Geometry) {
    let mut blocks = [0; 3];
    lab.fates(move |op| match (&op.action, op.place) {
        (Action::Write { sector: 2, .. }, Place::Resource(n)) => {
            blocks[usize::from(n)] += 1;
            if blocks[usize::from(n)] == 2 && n > 0 { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() }
        }
        _ => Fate::prompt(),
    });
    match acquire_as(lab, three(), AcquireOptions::default()).outcome {
        AcquireOutcome::Failed { retract: left @ Some(_), geometry, .. } => (left, geometry),
        other => panic!("to be taken back: {other:?}"),
    }
}

/// A value that reached one disk only, which cannot be read when it is taken back. Host 2 does not know of the others that it was not chosen,
/// and commits it in host 1's name: version 5 is then free by the flag beside the value, and 6 is to be had.
#[test]
fn a_value_on_a_disk_that_the_retract_did_not_reach() {
    let mut lab = lab_of(leader(4, NOBODY));
    let (left, geometry) = value_on_disk_0_alone(&mut lab);
    failing(&mut lab, |op| op.place == disk(0));
    let out = lab.run(&mut PaxosRelease::retract(three(), geometry).of_attempt(left));
    assert_eq!((out.outcome.result, out.outcome.needs_retract()), (Ok(Released::ByFlag), false));
    lab.no_faults();
    assert!((0..2).any(|_| taken_by_2(&mut lab)), "nobody holds it, and host 1 is done with it");
    assert_eq!(leader_on(&lab, 0).lver.get(), 6);
}

/// A majority without any block of ours has been formatted since: the value of an attempt on the lease before has no place in it.
#[test]
fn what_an_attempt_wrote_is_not_brought_back_into_a_lease_that_was_formatted_since() {
    let mut lab = lab_of(leader(57, NOBODY));
    let (left, geometry) = value_on_disk_0_alone(&mut lab);
    lab.no_faults();
    for n in 0..3 {
        put(&mut lab, disk(n), 0, Content::Leader(leader(0, NOBODY)));
        put(&mut lab, disk(n), 2, Content::Block(HostBlock::zeroed()));
    }
    let out = lab.run(&mut PaxosRelease::retract(three(), geometry).of_attempt(left)).outcome;
    assert!(!out.needs_retract() && out.block_failure.is_none(), "{out:?}");
    assert!((0..3).all(|n| block_on(&lab, n, US) == HostBlock::zeroed()));
}

/// The same of a conversion to exclusive, the hold of which is given up later.
#[test]
fn a_value_of_a_failed_conversion_on_a_disk_that_the_retract_did_not_reach() {
    let mut lab = lab_of(leader(4, NOBODY));
    let options = AcquireOptions { mode: Mode::ShortHold, ..AcquireOptions::default() };
    let done = lab.run(&mut PaxosShare::new(three(), options, 2));
    let AcquireOutcome::Acquired(shared) = done.outcome else { panic!("not shared: {:?}", done.outcome) };
    // The value gets to disk 0 alone, and the mark that follows nowhere.
    let mut blocks = [0; 3];
    lab.fates(move |op| match (&op.action, op.place) {
        (Action::Write { sector: 2, .. }, Place::Resource(n)) => {
            blocks[usize::from(n)] += 1;
            let fails = blocks[usize::from(n)] > if n == 0 { 2 } else { 1 };
            if fails { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() }
        }
        _ => Fate::prompt(),
    });
    let up = lab.run(&mut PaxosConvert::to_exclusive(three(), AcquireOptions::default(), shared)).outcome;
    assert!(up.result.is_err() && up.erase && up.held.is_shared(), "{up:?}");
    failing(&mut lab, |op| op.place == disk(0));
    let machine = PaxosRelease::retract(three(), up.held.geometry).of_attempt(Some(up.held.block));
    let out = lab.run(&mut machine.clone());
    assert_eq!((out.outcome.result, out.outcome.needs_retract()), (Ok(Released::ByFlag), false));
    lab.no_faults();
    assert!((0..2).any(|_| taken_by_2(&mut lab)), "nobody holds it, and host 1 is done with it");
}

/// Damage is final only where it is all there is: a disk that could not be read may be whole.
#[test]
fn a_damaged_block_beside_disks_that_cannot_be_read_is_looked_at_again() {
    let ours = block([4001, 4001, US, 1, 500, 5]);
    let mut bad = ours;
    bad.dblock.checksum = 1.into();
    let retract = |lab: &mut Lab, disks| {
        let config = PaxosConfig { disks, ..config(US) };
        lab.run(&mut PaxosRelease::retract(config, Geometry::B512_M1)).outcome
    };
    for disks in [2, 3] {
        let mut lab = lab3([leader(5, owned_by(US, 1)); 3]);
        (0..disks).for_each(|n| put(&mut lab, disk(n), 2, Content::Block(if n == 0 { bad } else { ours })));
        failing(&mut lab, |op| op.place != disk(0));
        let outcome = retract(&mut lab, disks);
        assert_eq!(
            (outcome.result, outcome.needs_retract()),
            (Err(ReleaseError::Io(IoFailure::Os(5))), true)
        );
        // One that hangs is left alone where the others are a majority.
        lab.fates(|op| if op.place == disk(1) { Fate::never() } else { Fate::prompt() });
        assert!(retract(&mut lab, disks).needs_retract());
        lab.no_faults();
        (0..disks).for_each(|n| put(&mut lab, disk(n), 2, Content::Block(bad)));
        assert!(matches!(retract(&mut lab, disks).result, Err(ReleaseError::Dblock(_))));
    }
    let mut lab = lab3([leader(5, owned_by(US, 1)); 3]);
    failing(&mut lab, |_| true);
    assert_eq!(retract(&mut lab, 3).result, Err(ReleaseError::Io(IoFailure::Os(5))), "none can be read");
}

/// The value block is on the first disk alone. While it is not known what lies there, it waits, and no write of it has failed.
#[test]
fn a_value_waits_for_a_first_disk_that_could_not_be_read() {
    for (fate, failure) in
        [(Fate::never(), IoFailure::TimedOut), (Fate::fail(IoFailure::Os(5)), IoFailure::Os(5))]
    {
        let mut lab = lab_of(leader(4, NOBODY));
        let done = lab.run(&mut PaxosAcquire::new(three(), AcquireOptions::default()));
        let AcquireOutcome::Acquired(held) = done.outcome else { panic!("{:?}", done.outcome) };
        lab.fates(move |op| if op.place == disk(0) { fate } else { Fate::prompt() });
        lab.trace.clear();
        let value: std::sync::Arc<[u8]> = std::sync::Arc::from(vec![9_u8; 512]);
        let mut release = PaxosRelease::new(three(), held).with_value(Some(value.clone()));
        let out = lab.run(&mut release);
        assert_eq!((out.outcome.result, out.outstanding), (Err(ReleaseError::Io(failure)), 0));
        assert!(out.outcome.needs_retract() && !out.outcome.value_written);
        assert!(lab.trace.iter().all(|t| !t.op.is_write()), "nothing is given up before it");
        lab.no_faults();
        let mut again = PaxosRelease::retract(three(), held.geometry).with_value(Some(value));
        let out = lab.run(&mut again);
        assert_eq!((out.outcome.result, out.outcome.value_written), (Ok(Released::LeaderFreed), true));
    }
}

/// What a retract knows of its attempt does not bring back what is older than the disks say.
#[test]
fn an_attempt_that_is_older_than_what_is_on_the_disks() {
    let mut lab = lab3([leader(4, NOBODY); 3]);
    let newer = released(block([4001, 4001, US, 1, 600, 4]));
    (0..3).for_each(|n| put(&mut lab, disk(n), 2, Content::Block(newer)));
    for older in [block([2001, 2001, US, 1, 500, 4]), block([6001, 6001, US, 1, 500, 3]), newer] {
        let from = lab.trace.len();
        lab.run(&mut PaxosRelease::retract(three(), Geometry::B512_M1).of_attempt(Some(older)));
        assert!(lab.trace.iter().skip(from).all(|traced| !traced.op.is_write()), "{older:?}");
    }
}
