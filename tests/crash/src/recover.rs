//! What has to hold for disks on which a host died.
//!
//! 1. Every record can be read, generations have not gone back (S9), and what somebody holds exclusively no ballot of any majority
//!    could give to another (S3).
//! 2. Until the dead host must have been reset, nobody gets what its processes may still be using, nor what a living host holds (S1),
//!    however often they try, whatever their host table knows.
//! 3. After that the lease is to be had in either mode, within [`TRIES`] attempts, by a host that saw the death and by one that knows
//!    nothing (L3); once given back, by the next one too (L4). Those who take it may die at every write of theirs.
//! 4. The dead host comes back, after the wait or right after its power, with a larger generation, and gets the lease likewise.
//! 5. Where a rename has left no majority of the disks with either name, nobody gets the lease by either, and nobody writes anything in
//!    trying to; once the leaders have one name, whichever of the two, all of the above holds.

use crate::run::{Crash, Recorder};
use crate::world::{Hold, Host, NUM_HOSTS, Table, World, host_id, name, nowait};
use sanlock_lease::delta::{DeltaAcquire, Instance};
use sanlock_lease::machine::{Action, Content, Place};
use sanlock_lease::paxos::acquire::AcquireOptions;
use sanlock_lease::paxos::{AcquireError, Held};
use sanlock_lease::verify::{self, Expect, LeaderError, Purpose};
use std::collections::HashMap;

/// Attempts within which a lease that nobody may be using is to be had: the first may only find out that the version being decided
/// was that of a dead host.
pub const TRIES: u32 = 2;
/// Seconds after its death at which a host may still be using something: at once, and just before it is taken for dead.
const STILL: [u64; 2] = [0, 138];

/// What was covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Submissions of the operation that wrote something: those of several disks at once count as one.
    pub points: usize,
    /// Sectors written.
    pub writes: usize,
    /// Different disks that a crash of the operation leaves.
    pub crashes: usize,
    /// The same, of those who recover.
    pub later: usize,
    /// Attempts to take the lease on them.
    pub attempts: u64,
    /// The most attempts it took to get a lease that nobody could be using.
    pub tries_max: u32,
    /// Crashes that leave no majority of the disks with one name.
    pub nameless: usize,
}

/// An operation under test.
pub struct Case<'a> {
    /// The world before it.
    pub before: &'a World,
    /// The host that carries it out and dies.
    pub actor: u64,
    /// What its processes may go on using whatever the operation got to.
    pub relies: Hold,
    /// How many hosts die one after the other, the one under test included.
    pub deaths: u32,
}

impl Case<'_> {
    /// Runs the operation and checks every state that the death of its host may leave. `look` sees each of them first.
    ///
    /// # Panics
    /// Something does not hold; the message names the write.
    pub fn explore(
        &self,
        operation: impl FnOnce(&mut World, &mut Recorder),
        look: impl Fn(&World, &str),
    ) -> Report {
        let mut recorder = Recorder::default();
        operation(&mut self.before.clone(), &mut recorder);
        check_ballot_numbers(&recorder, self.actor, self.before.geometry.max_hosts().into());
        let mut report = Report {
            points: recorder.points,
            writes: recorder.asked.len(),
            crashes: recorder.crashes.len(),
            ..Report::default()
        };
        for (number, crash) in recorder.crashes.iter().enumerate() {
            let trail = format!("state {number}, died at write {} of {}", crash.point, recorder.points);
            let after = died(self.before, self.actor, crash, self.relies);
            look(&after, &trail);
            let mut checker = Checker { report: &mut report, deaths: self.deaths, trail };
            checker.check(self.before, &after, self.actor);
        }
        report
    }
}

/// The world in which `id` has died on these disks.
fn died(before: &World, id: u64, crash: &Crash, relies: Hold) -> World {
    let mut after = before.clone();
    after.disks.clone_from(&crash.disks);
    after.now = after.now.max(crash.at);
    if let Some(host) = after.hosts.get_mut(&id) {
        (host.died, host.hold) = (Some(after.now), relies);
    }
    after
}

/// Property S10: for one version a host's ballot numbers rise, and are its own.
fn check_ballot_numbers(recorder: &Recorder, actor: u64, max_hosts: u64) {
    let mut last: HashMap<Place, (u64, u64)> = HashMap::new();
    for asked in &recorder.asked {
        let (Content::Block(block), Action::Write { sector, .. }) = (asked.content(), &asked.op.action)
        else {
            continue;
        };
        if host_id(actor).block_sector() != *sector {
            continue;
        }
        let (lver, mbal) = (block.dblock.lver.get(), block.dblock.mbal.get());
        assert!(mbal == 0 || mbal % max_hosts == actor % max_hosts, "ballot {mbal} of host {actor}");
        if let Some(before) = last.insert(asked.op.place, (lver, mbal)) {
            assert!(before <= (lver, mbal), "the block of host {actor} goes back from {before:?}");
        }
    }
}

struct Checker<'a> {
    report: &'a mut Report,
    /// Hosts that may still die, this one included.
    deaths: u32,
    trail: String,
}

impl Checker<'_> {
    fn check(&mut self, before: &World, after: &World, dead: u64) {
        if after.is_nameless() {
            self.nameless(before, after, dead);
            return;
        }
        self.records(before, after);
        let prober = self.free_hosts(after)[0];
        self.nobody_gets_what_is_in_use(after, prober);
        // Also after attempts that were rightly refused, or that got what nobody relied on.
        let mut tried = after.clone();
        for hold in [Hold::Exclusive, Hold::Shared] {
            if let Ok(held) = self.attempt(&mut tried, prober, hold, nowait(), None) {
                tried.release(prober, held);
            }
        }
        let worlds = if tried.disks == after.disks { vec![after] } else { vec![after, &tried] };
        for world in worlds {
            let mut world = world.clone();
            world.pass(World::dead_secs());
            // Reset by now.
            world.hosts.values_mut().filter(|h| h.died.is_some()).for_each(|h| h.hold = Hold::Nothing);
            self.everybody_gets_it(&world, prober);
            self.another_death(&world, prober);
        }
        self.comes_back(before, after, dead);
    }

    /// A rename was cut short between the disks, and neither name has a majority.
    fn nameless(&mut self, before: &World, after: &World, dead: u64) {
        self.report.nameless += 1;
        self.records(before, after);
        let (old, new) = (before.resource, after.names_on_disk().into_iter().find(|n| *n != before.resource));
        let names = [old, new.unwrap_or(old)];
        let prober = self.free_hosts(after)[0];
        let mut back = after.clone();
        back.join(dead);
        for (world, id) in [(after, prober), (&back, dead)] {
            for (resource, secs) in names.into_iter().flat_map(|name| [(name, 0), (name, World::dead_secs())])
            {
                for hold in [Hold::Exclusive, Hold::Shared] {
                    let mut world = World { resource, ..world.clone() };
                    world.pass(secs);
                    let leases = world.resource_areas();
                    let refused = world.take(id, hold, AcquireOptions::default());
                    let trail = &self.trail;
                    assert!(
                        matches!(refused, Err(AcquireError::LeaderRead { .. })),
                        "{trail}: {resource:?}: {refused:?}"
                    );
                    assert!(
                        world.resource_areas() == leases,
                        "{trail}: {resource:?}: a refused attempt wrote"
                    );
                }
            }
        }
        // Somebody who knows that it is one lease gives it one name (docs/guide/failure.md).
        for resource in names {
            let mut named = World { resource, ..after.clone() };
            named.name_leaders(resource);
            let trail = format!("{}, named {resource:?}", self.trail);
            let mut next = Checker { report: &mut *self.report, deaths: self.deaths, trail };
            next.check(before, &named, dead);
        }
    }

    /// Living hosts that hold nothing.
    fn free_hosts(&self, world: &World) -> Vec<u64> {
        let free = |host: &Host| host.died.is_none() && host.hold == Hold::Nothing;
        world.hosts.iter().filter(|(_, host)| free(host)).map(|(id, _)| *id).collect()
    }

    fn records(&self, before: &World, after: &World) {
        let trail = &self.trail;
        let lockspace = Some(name("ls"));
        for id in 1..=u64::from(NUM_HOSTS) {
            let (was, is) = (before.delta(id), after.delta(id));
            let valid = verify::delta(&is, lockspace.as_ref(), Purpose::Use);
            assert_eq!(valid, Ok(()), "{trail}: host id {id}");
            assert!(is.owner_generation.get() >= was.owner_generation.get(), "{trail}: S9, host id {id}");
        }
        for disk in 0..after.areas.resource.len() {
            let expect = Expect { lockspace, resource: None, host_id: None };
            let sizes = verify::paxos(&after.leader(disk), &expect, Purpose::Use);
            assert_eq!(sizes, Ok(after.geometry), "{trail}: disk {disk}");
            for id in 1..=u64::from(NUM_HOSTS) {
                let valid = verify::dblock(&after.block(disk, id).dblock, host_id(id));
                assert_eq!(valid, Ok(()), "{trail}: disk {disk}");
            }
        }
        for (id, host) in &after.hosts {
            if let Some(held) = host.held.filter(|_| host.hold == Hold::Exclusive) {
                self.only_choice(after, (*id, host.joined.generation()), held.lver());
            }
        }
    }

    /// Property S3: whatever majority of the disks is read, the value accepted in the highest ballot for the version held is that of
    /// its holder.
    fn only_choice(&self, world: &World, holder: (u64, u64), lver: u64) {
        let disks = world.areas.resource.len();
        for set in (1_u32..1 << disks).filter(|set| set.count_ones() as usize > disks / 2) {
            let read = (0..disks).filter(|disk| set >> disk & 1 == 1);
            let blocks = read.flat_map(|disk| (1..=u64::from(NUM_HOSTS)).map(move |id| (disk, id)));
            let accepted = blocks
                .map(|(disk, id)| world.block(disk, id).dblock)
                .filter(|d| d.lver.get() == lver && d.bal.get() > 0 && d.inp.get() > 0)
                .max_by_key(|d| d.bal.get());
            let choice = accepted.map(|d| (d.inp.get(), d.inp2.get()));
            assert_eq!(choice, Some(holder), "{}: S3, disks {set:#b}", self.trail);
        }
    }

    /// One attempt, under the name that the lease has by now.
    fn attempt(
        &mut self,
        world: &mut World,
        id: u64,
        hold: Hold,
        options: AcquireOptions,
        table: Option<&Table>,
    ) -> Result<Held, AcquireError> {
        self.report.attempts += 1;
        let table = table.cloned().unwrap_or_else(|| world.table());
        let name = world.resource;
        match world.take_seeing(&table, id, hold, options, None) {
            // A release that was to rename it may have got that far.
            Err(error) if is_other_name(&error) => {
                world.resource = world.name_on_disk();
                if world.resource == name {
                    return Err(error);
                }
                world.take_seeing(&table, id, hold, options, None)
            }
            outcome => outcome,
        }
    }

    fn refused(&mut self, world: &mut World, id: u64, hold: Hold, table: Option<&Table>) {
        if let Ok(held) = self.attempt(world, id, hold, nowait(), table) {
            panic!("{}: host {id} gets {hold:?} beside another: {held:?}", self.trail);
        }
    }

    fn nobody_gets_what_is_in_use(&mut self, world: &World, prober: u64) {
        for hold in [Hold::Exclusive, Hold::Shared] {
            if !in_the_way(world, hold) {
                continue;
            }
            for secs in STILL {
                for knows in [true, false] {
                    let mut world = world.clone();
                    world.pass(secs);
                    let table = if knows { world.table() } else { Table::default() };
                    self.refused(&mut world, prober, hold, Some(&table));
                    self.refused(&mut world, prober, hold, Some(&table));
                }
            }
        }
    }

    /// Host `id` takes the lease in as many attempts as it may take.
    fn gets(&mut self, world: &mut World, id: u64, hold: Hold, table: Option<&Table>) -> Held {
        let mut last = None;
        for tries in 1..=TRIES {
            match self.attempt(world, id, hold, AcquireOptions::default(), table) {
                Ok(held) => {
                    self.report.tries_max = self.report.tries_max.max(tries);
                    return held;
                }
                Err(e) => last = Some(e),
            }
        }
        panic!("{}: host {id} does not get {hold:?} in {TRIES} attempts: {last:?}", self.trail);
    }

    /// Nobody but living holders uses the lease.
    fn everybody_gets_it(&mut self, world: &World, first: u64) {
        let other = self.free_hosts(world).into_iter().find(|id| *id != first);
        for hold in [Hold::Exclusive, Hold::Shared] {
            if in_the_way(world, hold) {
                self.refused(&mut world.clone(), first, hold, None);
                continue;
            }
            let mut saw = world.clone();
            let held = self.gets(&mut saw, first, hold, None);
            if let Some(other) = other {
                self.refused(&mut saw.clone(), other, Hold::Exclusive, None);
                if hold == Hold::Shared {
                    let beside = self.gets(&mut saw, other, Hold::Shared, None);
                    saw.release(other, beside);
                } else {
                    self.refused(&mut saw.clone(), other, Hold::Shared, None);
                }
            }
            saw.release(first, held);
            if let Some(other) = other.filter(|_| !in_the_way(world, Hold::Exclusive)) {
                let held = self.gets(&mut saw, other, Hold::Exclusive, None);
                saw.release(other, held);
            }
            self.knowing_nothing(world, first, hold);
        }
        self.after_the_living(world, first);
    }

    /// A host that has just joined watches the owner itself. Only a shared holder that it does not know stays in its way.
    fn knowing_nothing(&mut self, world: &World, id: u64, hold: Hold) {
        let mut world = world.clone();
        let nothing = Table::default();
        for tries in 1..=TRIES {
            match self.attempt(&mut world, id, hold, AcquireOptions::default(), Some(&nothing)) {
                Ok(held) => {
                    self.report.tries_max = self.report.tries_max.max(tries);
                    world.release(id, held);
                    return;
                }
                Err(AcquireError::Shared { .. }) if hold == Hold::Exclusive => return,
                Err(_) => {}
            }
        }
        panic!("{}: host {id}, knowing nothing, does not get {hold:?}", self.trail);
    }

    /// Living holders give the lease up, and somebody else gets it.
    fn after_the_living(&mut self, world: &World, first: u64) {
        let mut world = world.clone();
        let holders: Vec<(u64, Held)> = world.hosts.iter().filter_map(living_holder).collect();
        if holders.is_empty() {
            return;
        }
        for (id, held) in holders {
            world.release(id, held);
        }
        let held = self.gets(&mut world, first, Hold::Exclusive, None);
        world.release(first, held);
    }

    /// Who takes the lease dies at every write, too.
    fn another_death(&mut self, world: &World, id: u64) {
        if self.deaths <= 1 || self.free_hosts(world).len() < 2 {
            return;
        }
        for hold in [Hold::Exclusive, Hold::Shared] {
            let mut recorder = Recorder::default();
            let mut taking = world.clone();
            for _ in 0..TRIES {
                let table = taking.table();
                let options = AcquireOptions::default();
                match taking.take_seeing(&table, id, hold, options, Some(&mut recorder)) {
                    Ok(_) => break,
                    Err(error) if is_other_name(&error) => taking.resource = taking.name_on_disk(),
                    Err(_) => {}
                }
            }
            self.report.later += recorder.crashes.len();
            for crash in &recorder.crashes {
                let after = died(world, id, crash, Hold::Nothing);
                let trail = format!("{}, then host {id} at {} of {hold:?}", self.trail, crash.point);
                let mut next = Checker { report: &mut *self.report, deaths: self.deaths - 1, trail };
                next.check(world, &after, id);
            }
        }
    }

    /// The dead host comes back: after the wait for its own lease, or right after its power came back, when nothing of it can be left.
    fn comes_back(&mut self, before: &World, after: &World, dead: u64) {
        let generation = before.delta(dead).owner_generation.get();
        let mut waited = after.clone();
        waited.join(dead);
        let mut rebooted = after.clone();
        let found = rebooted.delta(dead).owner_generation.get();
        let config = World::delta_config(dead);
        let earlier = Instance { generation, io_timeout: config.io_timeout };
        let mut machine = DeltaAcquire::new(config, Some(found)).remembering(Some(earlier));
        let joined = rebooted.drive(dead, &mut machine, None).unwrap();
        rebooted.hosts.insert(dead, Host { joined, died: None, hold: Hold::Nothing, held: None });
        for mut world in [waited, rebooted] {
            assert!(world.hosts[&dead].joined.generation() > generation, "{}: S9", self.trail);
            // Whoever else died before is long dead.
            world.hosts.values_mut().filter(|h| h.died.is_some()).for_each(|h| h.hold = Hold::Nothing);
            self.everybody_gets_it(&world, dead);
        }
    }
}

fn living_holder((id, host): (&u64, &Host)) -> Option<(u64, Held)> {
    Some((*id, host.held.filter(|_| host.died.is_none() && host.hold != Hold::Nothing)?))
}

/// Whether the lease may be there under another name.
fn is_other_name(error: &AcquireError) -> bool {
    matches!(error, AcquireError::Leader(LeaderError::Resource { .. }) | AcquireError::LeaderRead { .. })
}

/// Whether somebody's hold excludes this one.
fn in_the_way(world: &World, hold: Hold) -> bool {
    world
        .hosts
        .values()
        .any(|host| host.hold == Hold::Exclusive || (host.hold == Hold::Shared && hold == Hold::Exclusive))
}
