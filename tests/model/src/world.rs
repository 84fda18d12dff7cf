//! States of the whole, what may happen in each, and what comes of it.
//!
//! A state is a handful of numbers: hosts, sectors and the history are looked up in tables that hold every value once, and a
//! step of a machine that was taken before is looked up too. Equality of states is therefore equality of the machines
//! themselves (`Clone + Eq + Hash`), never of a digest of them.

use crate::checks::{self, Chosen, Marks, Property};
use crate::disk::{ContentId, Contents, Disks, Resource, block_owner};
use crate::explore::Map;
use crate::host::{Host, Pending};
use crate::settings::{Budget, Kind, Plan, Settings, Twist};
use crate::sharing::without_mode;
use crate::surroundings::{Life, Lives};
use crate::turn::{Around, Effects, Turn};
use crate::{DISKS, HOSTS};
use sanlock_lease::machine::Content;
use sanlock_lease::record::RawLeader;
use std::fmt;
use std::hash::Hash;
use std::rc::Rc;

/// Everything there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) hosts: [u32; HOSTS],
    disks: [u32; DISKS],
    history: u32,
    pub(crate) lives: Lives,
    last_granted: u8,
    pub(crate) budget: Budget,
}

/// Something that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The submitted operation takes effect and completes.
    Complete,
    /// The moment of one sector of a read, before the read's end: 0 the leader, from 1 on the hosts' blocks.
    Peek(u8),
    /// The submitted write times out; it lands later or never.
    TimeOut,
    /// The submitted operation fails; a write has landed all the same.
    FailLanded,
    /// The submitted operation fails without effect.
    Fail,
    /// A machine that waits is woken.
    Wake,
    /// A late write lands, and its host sees that it did.
    Land(u8),
    /// A late write fails for good, and its host sees that.
    LateFails(u8),
    /// The host crashes.
    Crash,
    /// Its lockspace fails.
    Lose,
    /// Its lockspace is removed and joined again while an operation runs.
    JoinAnew,
    /// It has been silent for so long that everybody knows it to be dead.
    KnownDead,
    /// It comes back with the next generation.
    Rejoin,
    /// A process gives up a lease of which a write is still on its way.
    GiveUp,
    /// The host loses its path to a disk.
    LosePath,
    /// It has it again.
    PathBack,
    /// The moment of the read of the own block that goes along with the pending one.
    OwnBlock,
    /// The host looks at the others.
    Look,
    /// The host leaves the lockspace before it has begun anything.
    Leave,
    /// Only once faults have ended: one more acquire.
    OnceMore,
    /// The same, of a shared hold.
    ShareOnceMore,
}

/// An event of a host, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Action {
    /// Whose.
    pub host: u8,
    /// On which disk, if that says anything.
    pub disk: u8,
    /// Which one of the operations that were submitted there together.
    pub nth: u8,
    /// What.
    pub event: Event,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}: {:?}", self.host + 1, self.event)
    }
}

/// What an action led to.
#[derive(Clone, Debug)]
pub struct Next {
    /// The state after it.
    pub state: State,
    /// What happened on the way.
    pub effects: Effects,
    /// What it broke.
    pub broken: Vec<Property>,
}

/// A write that lands.
#[derive(Clone, Copy)]
struct Landing {
    late: bool,
    disk: u8,
    sector: u64,
    content: ContentId,
}

/// Everything one turn of a host depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TurnKey {
    host: u32,
    event: Event,
    disk: u8,
    nth: u8,
    /// What a read that ends now sees.
    seen: Resource,
    /// The own block, which may be read at once.
    own: [ContentId; DISKS],
    lives: Lives,
}

/// A run's tables.
#[derive(Debug)]
pub struct World {
    /// What it is about.
    pub settings: Settings,
    pub(crate) contents: Contents,
    hosts: Vec<Rc<Host>>,
    host_numbers: Map<Rc<Host>, u32>,
    resources: Vec<Resource>,
    resource_numbers: Map<Resource, u32>,
    histories: Vec<Chosen>,
    history_numbers: Map<Chosen, u32>,
    turns: Map<TurnKey, (u32, Effects)>,
    /// What was reached.
    pub marks: Marks,
}

impl World {
    /// Empty tables.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            contents: Contents::default(),
            hosts: Vec::new(),
            host_numbers: Map::default(),
            resources: Vec::new(),
            resource_numbers: Map::default(),
            histories: Vec::new(),
            history_numbers: Map::default(),
            turns: Map::default(),
            marks: Marks::default(),
        }
    }

    /// A free lease, and every host about to acquire it.
    pub fn begin(&mut self) -> State {
        let formatted = Resource::formatted(&mut self.contents);
        let disks = [self.resource_number(formatted); DISKS];
        let history = self.history_number(Chosen::new());
        let mut state = State {
            hosts: [0; HOSTS],
            disks,
            history,
            lives: Lives([(Life::Joined, 1); HOSTS]),
            last_granted: 0,
            budget: self.settings.budget,
        };
        for index in 0..HOSTS {
            let kind = self.settings.hosts.get(index).copied().unwrap_or(Kind::Ours);
            let mut host = Host::new(index, kind, self.settings.attempts[index]);
            host.seen = self.settings.stale_tables.then_some(state.lives);
            for (_, disk) in self.settings.cut_off.iter().filter(|(number, _)| *number == index) {
                host.lost |= 1 << disk;
            }
            let mut effects = Effects::default();
            self.turn(&mut host, &state, |turn| turn.next(), &mut effects);
            state.hosts[index] = self.host_number(host);
        }
        state
    }

    fn host_number(&mut self, host: Host) -> u32 {
        if let Some(number) = self.host_numbers.get(&host) {
            return *number;
        }
        let number = crate::number_of(self.hosts.len());
        let host = Rc::new(host);
        self.hosts.push(Rc::clone(&host));
        self.host_numbers.insert(host, number);
        number
    }

    fn resource_number(&mut self, resource: Resource) -> u32 {
        if let Some(number) = self.resource_numbers.get(&resource) {
            return *number;
        }
        let number = crate::number_of(self.resources.len());
        self.resources.push(resource);
        self.resource_numbers.insert(resource, number);
        number
    }

    /// The disks in a state.
    #[must_use]
    pub fn disks(&self, state: &State) -> Disks {
        state.disks.map(|number| self.resources[number as usize])
    }

    fn history_number(&mut self, chosen: Chosen) -> u32 {
        if let Some(number) = self.history_numbers.get(&chosen) {
            return *number;
        }
        let number = crate::number_of(self.histories.len());
        self.histories.push(chosen.clone());
        self.history_numbers.insert(chosen, number);
        number
    }

    /// A host as it is in a state.
    #[must_use]
    pub fn host(&self, state: &State, host: usize) -> &Host {
        &self.hosts[state.hosts[host] as usize]
    }

    /// How many different values of a host there were.
    #[must_use]
    pub fn distinct_hosts(&self) -> usize {
        self.hosts.len()
    }

    fn turn(
        &mut self,
        host: &mut Host,
        state: &State,
        act: impl FnOnce(&mut Turn<'_>),
        effects: &mut Effects,
    ) {
        let mut turn = Turn {
            host,
            settings: &self.settings,
            around: Around {
                disks: state.disks.map(|number| self.resources[number as usize]),
                lives: state.lives,
            },
            contents: &mut self.contents,
            effects: *effects,
        };
        act(&mut turn);
        *effects = turn.effects;
    }

    /// What may happen in a state.
    pub fn actions(&self, state: &State, into: &mut Vec<Action>) {
        into.clear();
        let budget = state.budget;
        for index in 0..self.settings.hosts.len() {
            let host = self.host(state, index);
            let number = u8::try_from(index).unwrap_or(u8::MAX);
            for running in host.running.iter().filter(|r| r.ended.is_none()) {
                let (disk, nth) = (running.disk, running.nth);
                let mut may = |event| into.push(Action { host: number, disk, nth, event });
                may(Event::Complete);
                if let Pending::Read { count: 2.., peeked, .. } = running.what {
                    let hosts = self.settings.hosts.len();
                    let parts = (0..=hosts).filter(|part| *part != index + 1 && !peeked.has(*part));
                    // Of the last part the moment is the end itself.
                    if self.settings.torn_reads && peeked.count() + 1 < hosts {
                        parts.for_each(|part| may(Event::Peek(u8::try_from(part).unwrap_or(u8::MAX))));
                    }
                }
                let write = matches!(running.what, Pending::Write { .. });
                let leader = matches!(running.what, Pending::Write { sector: 0, .. });
                let faulty = self.settings.faulty.contains(&disk);
                if faulty && write && budget.late > 0 && (leader || !self.settings.only_leaders_late) {
                    may(Event::TimeOut);
                }
                if (faulty && budget.errors > 0) || host.is_cut_off(disk) {
                    may(Event::Fail);
                    if write {
                        may(Event::FailLanded);
                    }
                }
            }
            for disk in self.settings.faulty.iter().copied().filter(|disk| *disk < self.settings.disks) {
                if host.is_cut_off(disk) {
                    into.push(Action { host: number, disk, nth: 0, event: Event::PathBack });
                } else if budget.paths > 0 && host.works() {
                    into.push(Action { host: number, disk, nth: 0, event: Event::LosePath });
                }
            }
            let mut may = |event| into.push(Action { host: number, disk: 0, nth: 0, event });
            if host.own_read.is_some() {
                may(Event::OwnBlock);
            }
            if host.seen.is_some_and(|seen| seen != state.lives) {
                may(Event::Look);
            }
            if host.may_give_up() {
                may(Event::GiveUp);
            }
            if host.wait.is_some() && budget.waits > 0 {
                may(Event::Wake);
            }
            let life = state.lives.0[index].0;
            for late in 0..host.late.len() {
                let late = u8::try_from(late).unwrap_or(u8::MAX);
                may(Event::Land(late));
                if life == Life::Joined {
                    may(Event::LateFails(late));
                }
            }
            let busy = host.works() || !host.late.is_empty();
            match life {
                Life::Joined => {
                    if busy && budget.crashes > 0 {
                        may(Event::Crash);
                    }
                    if host.fresh && budget.leaves > 0 {
                        may(Event::Leave);
                    }
                    if busy && budget.lapses > 0 {
                        may(Event::Lose);
                        // A lockspace is removed only when its users are gone; of ours also only when no write is in flight.
                        let quiet =
                            !host.has_lease() && (host.kind() == Kind::Reference || !host.writes_in_flight());
                        if quiet && host.works() {
                            may(Event::JoinAnew);
                        }
                    }
                }
                Life::Lost => may(Event::KnownDead),
                Life::Down => {
                    may(Event::KnownDead);
                    may(Event::Rejoin);
                }
                Life::Dead | Life::Left => may(Event::Rejoin),
            }
        }
    }

    /// The write that an action lets land: disk, sector, content.
    fn landing(host: &Host, action: Action) -> Option<Landing> {
        match (action.event, host.pending(action.disk, action.nth)) {
            (Event::Complete | Event::FailLanded, Some(Pending::Write { sector, content })) => {
                Some(Landing { late: false, disk: action.disk, sector, content })
            }
            (Event::Land(which), _) => {
                let late = host.late.get(usize::from(which))?;
                Some(Landing { late: true, disk: late.disk, sector: late.sector, content: late.content })
            }
            _ => None,
        }
    }

    fn vanishes(&self, content: ContentId) -> bool {
        let leader = matches!(self.contents.content(content), Content::Leader(_));
        let later = self.contents.leader(content).lver.get() > 1;
        match self.settings.twist {
            Twist::WritesVanish => true,
            Twist::LeadersVanish => leader,
            Twist::LaterLeadersVanish => leader && later,
            Twist::BlocksVanish => !leader,
            Twist::None | Twist::LivingLookDead | Twist::ReleasedTooEarly | Twist::ModesVanish => false,
        }
    }

    /// Lets an action happen.
    pub fn next(&mut self, before: &State, action: Action) -> Next {
        let index = usize::from(action.host);
        let mut state = *before;
        let mut broken = Vec::new();
        let host = Rc::clone(&self.hosts[state.hosts[index] as usize]);
        spend(&mut state.budget, action.event);
        let mut landing = Self::landing(&host, action).filter(|landing| !self.vanishes(landing.content));
        if let Some(landing) = &mut landing {
            if self.settings.twist == Twist::ModesVanish {
                landing.content = without_mode(&mut self.contents, landing.content);
            }
            let on = &mut state.disks[usize::from(landing.disk)];
            let mut resource = self.resources[*on as usize];
            resource.land(landing.sector, landing.content);
            *on = self.resource_number(resource);
        }
        let (life, generation) = state.lives.0[index];
        state.lives.0[index] = match action.event {
            Event::Crash => (Life::Down, generation),
            Event::Lose => (Life::Lost, generation),
            Event::Leave => (Life::Left, generation),
            Event::KnownDead => (Life::Dead, generation),
            Event::JoinAnew | Event::Rejoin => (Life::Joined, generation + 1),
            _ => (life, generation),
        };
        let (number, effects) = self.host_turn(state.hosts[index], &state, life, action);
        state.hosts[index] = number;
        broken.extend(checks::of_flags(effects.flags));
        if let Some(landing) = landing {
            self.landed(before, &mut state, index, landing, &mut broken);
        }
        if let Some(leader) = effects.granted {
            self.granted(&mut state, index, leader, &mut broken);
        }
        if landing.is_some() || effects.granted.is_some() {
            let alone = self.settings.hosts.iter().all(|kind| *kind == Kind::Ours);
            let disks = self.disks(&state);
            let disks = &disks[..usize::from(self.settings.disks)];
            for holder in 0..self.settings.hosts.len() {
                if let Some(holding) = self.host(&state, holder).holding {
                    if !checks::blocks_keep_owner(&self.contents, disks, holding, alone) {
                        broken.push(Property::BlocksKeepOwner);
                    }
                }
            }
        }
        if self.has_sharers() {
            self.check_sharers(&state, &mut broken);
            self.marks.shared_by_two += u64::from(self.sharers(&state) > 1);
        }
        broken.retain(|property| self.settings.properties.contains(property));
        self.marks.count(effects.flags);
        Next { state, effects, broken }
    }

    /// The host's own part, looked up if it was taken before.
    fn host_turn(&mut self, number: u32, state: &State, life: Life, action: Action) -> (u32, Effects) {
        let Action { disk, nth, event, .. } = action;
        let before = Rc::clone(&self.hosts[number as usize]);
        let disks = self.disks(state);
        let seen = match (event, before.pending(disk, nth)) {
            (Event::Complete | Event::Peek(_), Some(Pending::Read { first, count, .. })) => {
                disks[usize::from(disk)].only(first, count)
            }
            _ => Resource::default(),
        };
        let own = disks.map(|disk| disk.blocks[before.index]);
        let key = TurnKey { host: number, event, disk, nth, seen, own, lives: state.lives };
        if let Some(known) = self.turns.get(&key) {
            return *known;
        }
        let mut host = Host::clone(&before);
        let mut effects = Effects::default();
        let act = |turn: &mut Turn<'_>| match event {
            Event::Complete => turn.complete(disk, nth),
            Event::Peek(part) => turn.peek(disk, nth, usize::from(part)),
            Event::TimeOut => turn.time_out(disk, nth),
            Event::Fail | Event::FailLanded => turn.fail(disk, nth),
            Event::GiveUp => turn.host.give_up(),
            Event::LosePath => turn.path(disk, true),
            Event::PathBack => turn.path(disk, false),
            Event::Wake => turn.wake(),
            Event::Land(which) => turn.settled(usize::from(which), true),
            Event::LateFails(which) => turn.settled(usize::from(which), false),
            Event::Crash => turn.host.crash(),
            Event::Lose => turn.host.lose(),
            Event::JoinAnew => {}
            Event::KnownDead => turn.host.declared_dead(life),
            Event::Rejoin => {
                if life == Life::Down {
                    turn.host.reset();
                }
                if !turn.host.works() {
                    turn.next();
                }
            }
            Event::OwnBlock => turn.own_block(),
            Event::Look => turn.look(),
            Event::Leave => turn.host.leave(),
            Event::OnceMore => turn.once_more(Plan::Exclusive),
            Event::ShareOnceMore => turn.once_more(Plan::Shared),
        };
        self.turn(&mut host, state, act, &mut effects);
        let known = (self.host_number(host), effects);
        self.turns.insert(key, known);
        known
    }

    fn landed(
        &mut self,
        before: &State,
        state: &mut State,
        writer: usize,
        Landing { late, disk, sector, content }: Landing,
        broken: &mut Vec<Property>,
    ) {
        let on = usize::from(disk);
        let (old, new) = (self.disks(before)[on], self.disks(state)[on]);
        if let Some(owner) = block_owner(sector).filter(|owner| *owner != writer) {
            let newest = self.histories[state.history as usize].iter().next_back();
            let newest = newest.map(|(lver, value)| (*lver, value.0));
            let sharer = Rc::clone(&self.hosts[state.hosts[owner] as usize]);
            let which = (writer, owner);
            broken.extend(self.foreign_block_lands(&old, &new, which, (newest, &sharer)));
        } else if let Some((host, after)) = checks::block_written(&self.contents, sector, content) {
            let old = self.contents.block(old.blocks[host]).dblock;
            let holding = self.host(state, host).holding;
            broken.extend(checks::block_lands(&old, &after, host, holding));
        } else if sector == 0 {
            let leader = self.contents.leader(content);
            let old = self.contents.leader(old.leader);
            self.marks.rolled_back += u64::from(leader.lver.get() < old.lver.get());
            let owner = usize::try_from(old.owner_id.get()).unwrap_or(0);
            let dead = (1..=HOSTS).contains(&owner) && before.lives.0[owner - 1].0 == Life::Dead;
            self.mark_leader(state, late, &old, &leader);
            if dead && old.timestamp.get() != 0 && leader.lver.get() > old.lver.get() {
                self.marks.taken_from_dead += 1;
            }
            match checks::leader_lands(&self.histories[state.history as usize], &leader) {
                Ok(chosen) => state.history = self.history_number(chosen),
                Err(property) => broken.push(property),
            }
        }
    }

    fn mark_leader(&mut self, state: &State, late: bool, old: &RawLeader, new: &RawLeader) {
        let marks = &mut self.marks;
        marks.late_leaders += u64::from(late);
        // Of several disks one may have missed a version.
        marks.repaired += u64::from(!late && self.settings.disks == 1 && new.lver.get() > old.lver.get() + 1);
        let freed = old.timestamp.get() == 0 && old.lver.get() >= new.lver.get() && old.lver.get() > 0;
        marks.late_leader_after_release += u64::from(late && freed);
        if new.timestamp.get() == 0 || new.write_id == new.owner_id {
            return;
        }
        marks.committed_by_another += 1;
        let owner = usize::try_from(new.owner_id.get()).unwrap_or(0);
        if (1..=HOSTS).contains(&owner) && self.host(state, owner - 1).releases() {
            self.marks.adopted_while_releasing += 1;
        }
    }

    fn granted(&mut self, state: &mut State, host: usize, leader: ContentId, broken: &mut Vec<Property>) {
        self.marks.granted += 1;
        let holders =
            (0..self.settings.hosts.len()).filter(|h| self.host(state, *h).holding.is_some()).count();
        if holders > 1 {
            broken.push(Property::OneOwner);
        }
        let held = self.contents.leader(leader);
        let disks = self.disks(state);
        let behind = disks[..usize::from(self.settings.disks)]
            .iter()
            .any(|disk| self.contents.leader(disk.leader).lver.get() < held.lver.get());
        self.marks.granted_without_a_disk += u64::from(behind);
        let value = checks::owner_of(&held);
        let own = u64::from(state.lives.0[host].1);
        let landed = self.histories[state.history as usize].get(&held.lver.get()) == Some(&value);
        if !landed || (value.0, value.1) != (host as u64 + 1, own) {
            broken.push(Property::LeaderNamesOwner);
        }
        let lver = u8::try_from(held.lver.get()).unwrap_or(u8::MAX);
        if lver <= state.last_granted {
            broken.push(Property::VersionsRise);
        }
        state.last_granted = state.last_granted.max(lver);
    }
}

fn spend(budget: &mut Budget, event: Event) {
    let purse = match event {
        Event::TimeOut => &mut budget.late,
        Event::Fail | Event::FailLanded => &mut budget.errors,
        Event::Wake => &mut budget.waits,
        Event::Crash => &mut budget.crashes,
        Event::Lose | Event::JoinAnew => &mut budget.lapses,
        Event::LosePath => &mut budget.paths,
        Event::Complete
        | Event::Peek(_)
        | Event::Land(_)
        | Event::LateFails(_)
        | Event::KnownDead
        | Event::Rejoin
        | Event::OwnBlock
        | Event::GiveUp
        | Event::PathBack
        | Event::Look
        | Event::ShareOnceMore
        | Event::OnceMore => return,
        Event::Leave => &mut budget.leaves,
    };
    *purse = purse.saturating_sub(1);
}
