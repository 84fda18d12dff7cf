//! The states of a run, what may happen in each, and what must hold.

use super::Property;
use super::claimant::Claimant;
use super::search::Model;
use super::settings::{Budget, Settings, Watch};
use super::watcher::{CLAIMED, WATCHER, Watcher, sector_of};
use crate::disk::{ContentId, Contents, Resource, host_id};
use crate::explore::Map;
use sanlock_lease::delta::{DeltaConfig, HostScan};
use sanlock_lease::machine::{Content, Sectors, SliceView};
use sanlock_lease::name::Name;
use sanlock_lease::record::{Bitmap, RawLeader};
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};
use sanlock_sim::layout;
use std::hash::Hash;
use std::rc::Rc;

/// Milliseconds of a step of time.
pub(super) const STEP_MS: u64 = 500;
/// Where everybody's clock begins.
pub(super) const BEGIN: MonoTime = MonoTime::from_secs(1000);
/// Seconds of the shortest watchdog there is.
const FIRE_SECS: u32 = 4;
const ZEROS: [u8; 512] = [0; 512];

pub(super) fn io_timeout() -> IoTimeout {
    match IoTimeout::new(1) {
        Ok(timeout) => timeout,
        Err(e) => panic!("{e}"),
    }
}

pub(super) fn fire() -> WatchdogFire {
    match WatchdogFire::new(FIRE_SECS) {
        Ok(fire) => fire,
        Err(e) => panic!("{e}"),
    }
}

/// Steps of time after which a silent host is dead.
pub(super) fn dead_steps() -> u16 {
    u16::try_from(io_timeout().host_dead_secs(fire()) * 1000 / STEP_MS).unwrap_or(u16::MAX)
}

/// Everything there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) time: u16,
    pub(super) claimants: [u32; 2],
    pub(super) watcher: u32,
    /// The claimed host id's sector.
    pub(super) delta: ContentId,
    pub(super) resource: u32,
    /// When the last record of the instance that the sector names landed.
    pub(super) landed: u16,
    pub(super) budget: Budget,
}

/// Something that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Half a second passes.
    Time,
    /// A claimant joins the lockspace.
    Start,
    /// An operation takes effect and ends.
    Complete(u8),
    /// An operation begins to hang.
    Hang(u8),
    /// An operation that hangs has reached its limit.
    Over(u8),
    /// A timer of the claimant's machine, of its renewals or of recovery.
    Due,
    /// The claimant's daemon dies.
    Death,
    /// The claimant's host is reset.
    Reset,
    /// The claimant's watchdog fires.
    Fire,
    /// A process that was signalled ends.
    UserEnds,
    /// The claimant's process ends by itself, and the lockspace is removed.
    Leave,
    /// The claimant's host stands still.
    Freeze,
    /// The claimant's host stands still while it joins; what is under way takes effect with its going on.
    FreezeBefore,
    /// The same, and what is under way has taken effect before.
    FreezeAfter,
    /// It goes on.
    Thaw,
    /// Its clock gains half a second.
    Gain,
    /// Its clock loses half a second.
    Fall,
    /// The watcher looks at all hosts.
    Look,
    /// The watcher begins to want the resource.
    Want,
    /// The watcher's acquire is woken.
    Poll,
}

/// An event, of a claimant if it is of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Action {
    /// Which claimant, 0 or 1.
    pub who: u8,
    /// What.
    pub event: Event,
}

crate::checks::counters! {
    /// How often something interesting happened.
    pub struct Marks {
        joined, joined_fast, refused_busy, lost_race, renewed, renewed_late, corrupt, failed, ended_by_force, fired,
        released_id, resource_taken, watcher_took_from_dead, watcher_took_from_free, watcher_took_after_rejoin,
        late_write_landed, generation_back, id_taken_from_dead, died_with_process, rejoined_beside_process, stood_still,
    }
}

/// The sectors of the host ids.
pub(super) struct Area<'a> {
    claimed: &'a [u8],
    watcher: &'a [u8],
    range: (u64, u64),
}

impl<'a> Area<'a> {
    pub(super) fn range(&self, first: u64, count: u64) -> Area<'a> {
        Area { claimed: self.claimed, watcher: self.watcher, range: (first, count) }
    }
}

impl Sectors for Area<'_> {
    fn sector(&self, index: u64) -> Option<&[u8]> {
        let (first, count) = self.range;
        if index < first || index >= first + count {
            return None;
        }
        Some(match index {
            i if i == sector_of(CLAIMED) => self.claimed,
            i if i == sector_of(WATCHER) => self.watcher,
            _ => &ZEROS,
        })
    }

    fn next_in_use(&self, from: u64) -> Option<u64> {
        let (first, count) = self.range;
        let index = from.max(first);
        (index <= sector_of(WATCHER) && index < first + count).then_some(index)
    }
}

/// What everybody shares, for a while.
pub(super) struct Shared<'a> {
    pub(super) delta: ContentId,
    pub(super) watcher: &'a [u8],
}

impl Shared<'_> {
    pub(super) fn area<'a>(&'a self, contents: &'a Contents) -> Area<'a> {
        Area { claimed: contents.bytes(self.delta), watcher: self.watcher, range: (0, u64::MAX / 2) }
    }
}

/// Every different value of something, once.
#[derive(Debug)]
pub(super) struct Table<T> {
    values: Vec<Rc<T>>,
    numbers: Map<Rc<T>, u32>,
}

impl<T: Eq + Hash> Table<T> {
    fn new() -> Self {
        Self { values: Vec::new(), numbers: Map::default() }
    }

    pub(super) fn get(&self, number: u32) -> &Rc<T> {
        &self.values[number as usize]
    }

    pub(super) fn number(&mut self, value: T) -> u32 {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        let number = crate::number_of(self.values.len());
        let value = Rc::new(value);
        self.values.push(Rc::clone(&value));
        self.numbers.insert(value, number);
        number
    }
}

/// A run's tables.
#[derive(Debug)]
pub struct World {
    /// What it is about.
    pub settings: Settings,
    pub(super) contents: Contents,
    pub(super) claimants: Table<Claimant>,
    pub(super) watchers: Table<Watcher>,
    pub(super) resources: Table<Resource>,
    /// What was reached.
    pub marks: Marks,
}

impl World {
    /// A run that has not begun.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            contents: Contents::default(),
            claimants: Table::new(),
            watchers: Table::new(),
            resources: Table::new(),
            marks: Marks::default(),
        }
    }

    pub(super) fn config(&self, who: usize) -> DeltaConfig {
        DeltaConfig {
            lockspace: layout::lockspace(0),
            host: host_id(CLAIMED),
            host_name: self.name(who),
            io_timeout: io_timeout(),
            fire: fire(),
        }
    }

    pub(super) fn name(&self, who: usize) -> Name {
        layout::name(if who == 0 || self.settings.same_name { "machine-a" } else { "machine-b" })
    }

    pub(super) fn watcher_config() -> DeltaConfig {
        DeltaConfig {
            lockspace: layout::lockspace(0),
            host: host_id(WATCHER),
            host_name: layout::name("watcher"),
            io_timeout: io_timeout(),
            fire: fire(),
        }
    }

    /// A claimant's clock.
    pub(super) fn clock_of(&self, state: &State, claimant: &Claimant) -> MonoTime {
        let apart = if self.settings.same_uptime { 0 } else { 500 * claimant.number as u64 };
        Self::clock(state.time, claimant.ahead).plus_secs(apart)
    }

    /// A clock, half seconds ahead of everybody's.
    pub(super) fn clock(time: u16, ahead: i8) -> MonoTime {
        let steps = i64::from(time) + i64::from(ahead);
        let ms = steps.unsigned_abs() * STEP_MS;
        if steps < 0 { MonoTime::from_millis(BEGIN.millis() - ms) } else { BEGIN.plus_millis(ms) }
    }

    /// The watcher's own record: it renews all the time.
    pub(super) fn watcher_sector(time: u16) -> Vec<u8> {
        let mut delta = layout::free_delta(0);
        delta.owner_id = host_id(WATCHER).get().into();
        delta.owner_generation = 1.into();
        delta.resource_name = layout::name("watcher").to_field();
        delta.timestamp = Self::clock(time, 0).secs().into();
        delta.io_timeout = io_timeout().to_disk().into();
        delta.seal();
        let mut sector = vec![0; layout::GEOMETRY.sector().slice_len()];
        delta.encode(None, &mut sector);
        sector
    }

    /// The record in the claimed sector.
    pub(super) fn record(&self, delta: ContentId) -> RawLeader {
        let view = SliceView { first: 0, size: layout::GEOMETRY.sector(), bytes: self.contents.bytes(delta) };
        view.sector(0).map_or_else(RawLeader::zeroed, RawLeader::from_sector)
    }

    /// What happens in a schedule, a line each.
    pub fn narrate(&mut self, schedule: &[Action]) -> String {
        let mut text = String::new();
        let mut state = self.begin();
        for action in schedule {
            let who = ["a", "b"][usize::from(action.who)];
            let (next, broken) = self.next(&state, *action);
            state = next;
            if action.event == Event::Time {
                continue;
            }
            let record = self.record(state.delta);
            let seconds = f64::from(state.time) / 2.0;
            let broken = broken.map(|p| format!(" => BROKEN {p:?}")).unwrap_or_default();
            let disk = format!("generation {} timestamp {}", record.owner_generation, record.timestamp);
            let of = match action.event {
                Event::Look | Event::Want | Event::Poll => "watcher",
                _ => who,
            };
            text.push_str(&format!("{seconds:5.1} s {of}: {:?} [{disk}]{broken}\n", action.event));
        }
        for number in state.claimants {
            let claimant = self.claimants.get(number);
            let joined = claimant.member().map(|m| format!("joined {:?}", m.progress.stage));
            text.push_str(&format!("{:?}: user {:?}, {joined:?}\n", claimant.number, claimant.user));
        }
        text
    }
}

impl Model for World {
    type State = State;
    type Action = Action;
    type Property = Property;

    fn begin(&mut self) -> State {
        let free = Content::Delta { leader: layout::free_delta(0), bitmap: Bitmap::default() };
        let delta = self.contents.number(&free);
        let resource = Resource::formatted(&mut self.contents);
        let starts = self.settings.starts;
        let scan = HostScan::new(&Self::watcher_config(), layout::GEOMETRY);
        let watcher =
            Watcher { scan, next_scan: BEGIN, acquire: None, wake: None, holds: false, tried: false };
        State {
            time: 0,
            claimants: [0, 1].map(|number| self.claimants.number(Claimant::new(number, starts[number]))),
            watcher: self.watchers.number(watcher),
            delta,
            resource: self.resources.number(resource),
            landed: 0,
            budget: self.settings.budget,
        }
    }

    fn actions(&self, state: &State, into: &mut Vec<Action>) {
        into.clear();
        let mut urgent = false;
        for who in 0..2_u8 {
            urgent |= self.claimant_actions(state, who, into);
        }
        if self.settings.watcher != Watch::Nobody {
            let watcher = self.watchers.get(state.watcher);
            let now = Self::clock(state.time, 0);
            let mut may = |event| into.push(Action { who: 0, event });
            if watcher.next_scan <= now {
                may(Event::Look);
                urgent = true;
            }
            if watcher.wake.is_some_and(|wake| wake <= now) {
                may(Event::Poll);
                urgent = true;
            }
            let taken = state.claimants.iter().any(|number| self.claimants.get(*number).user.is_some());
            let at_once = self.settings.watcher == Watch::AtOnce;
            if !watcher.tried && (taken || !at_once) {
                may(Event::Want);
                urgent |= at_once;
            }
        }
        if !urgent && state.time < self.settings.horizon {
            into.push(Action { who: 0, event: Event::Time });
        }
    }

    fn next(&mut self, state: &State, action: Action) -> (State, Option<Property>) {
        let mut next = *state;
        let mut broken = Vec::new();
        match action.event {
            Event::Time => {
                self.before_time_passes(state, &mut broken);
                next.time += 1;
            }
            Event::Look | Event::Want | Event::Poll => self.watch(&mut next, action.event, &mut broken),
            _ => self.claim(&mut next, action, &mut broken),
        }
        self.check(&mut next, &mut broken);
        let kept = |property: &&Property| self.settings.properties.contains(property);
        (next, broken.iter().find(kept).copied())
    }
}

impl World {
    /// Whether a claimant believes that it holds the host id.
    fn believes(claimant: &Claimant, now: MonoTime) -> bool {
        let alive = claimant.member().is_some_and(|m| {
            m.progress.stage == sanlock_lease::recovery::Stage::Alive
                && now.secs_since(m.renewal.last_good()) < io_timeout().renewal_fail_secs()
        });
        alive && !claimant.frozen
    }

    fn check(&mut self, state: &mut State, broken: &mut Vec<Property>) {
        let record = self.record(state.delta);
        let claimants = state.claimants.map(|number| Rc::clone(self.claimants.get(number)));
        let users = claimants.iter().filter(|c| c.user.is_some()).count();
        if users + usize::from(self.watchers.get(state.watcher).holds) > 1 {
            broken.push(Property::OneOwner);
        }
        let believers = claimants.iter().filter(|c| Self::believes(c, self.clock_of(state, c)));
        if believers.count() > 1 {
            broken.push(Property::OneBeliever);
        }
        // An interval, the pause, and the rounding of both.
        let notice = u16::try_from((io_timeout().renewal_secs() + 2) * 1000 / STEP_MS).unwrap_or(u16::MAX);
        for (who, claimant) in claimants.iter().enumerate() {
            let Some(member) = claimant.member() else { continue };
            let named = record.owner_generation.get() == member.renewal.generation()
                && self.name(who).matches(&record.resource_name);
            let hindered = claimant.frozen || claimant.running.iter().any(|r| r.op.is_some());
            let stopped = member.renewal.corrupt().is_some() || member.stopping;
            let since = if named || hindered || stopped {
                None
            } else {
                Some(claimant.foreign_since.unwrap_or(state.time))
            };
            if since.is_some_and(|since| state.time - since > notice) {
                broken.push(Property::BelieverNotices);
            }
            if since != claimant.foreign_since {
                let changed = Claimant { foreign_since: since, ..Claimant::clone(claimant) };
                state.claimants[who] = self.claimants.number(changed);
            }
        }
    }

    /// Everything that is due in this half second has been done.
    fn before_time_passes(&self, state: &State, broken: &mut Vec<Property>) {
        for number in state.claimants {
            let claimant = self.claimants.get(number);
            let (Some(member), Some(user)) = (claimant.member(), claimant.user) else { continue };
            let now = self.clock_of(state, claimant);
            let old = now.secs_since(member.renewal.last_good()) >= io_timeout().renewal_fail_secs();
            if old && !user.signalled && !claimant.frozen {
                broken.push(Property::OldUsersAreEnded);
            }
        }
    }

    /// A record of the claimed host id lands.
    pub(super) fn land(
        &mut self,
        state: &mut State,
        who: usize,
        (content, late): (ContentId, bool),
        broken: &mut Vec<Property>,
    ) {
        let renewal = self.claimants.get(state.claimants[who]).member().is_some();
        let (old, new) = (self.record(state.delta), self.record(content));
        state.delta = content;
        let (before, after) = (old.owner_generation.get(), new.owner_generation.get());
        if after < before {
            self.marks.generation_back += 1;
            if !late {
                broken.push(Property::GenerationsRise);
            }
        }
        self.marks.late_write_landed += u64::from(late);
        let same = before == after && old.resource_name == new.resource_name;
        // Who has not joined yet may lose to another one that joins at the same time.
        let other = self.claimants.get(state.claimants[1 - who]);
        let settled = other.recorded == before && self.name(1 - who).matches(&old.resource_name);
        if !same && settled && old.timestamp.get() != 0 && !late {
            self.marks.id_taken_from_dead += 1;
            if !self.silent(state) {
                broken.push(Property::OwnersAreSilent);
            }
        }
        // What an attempt to join left behind is no sign of life of anybody.
        if renewal || !late {
            state.landed = state.time;
        }
    }

    /// Whether the holder that the sector names has been silent for as long as it takes.
    pub(super) fn silent(&self, state: &State) -> bool {
        let drifted = u16::from(self.settings.budget.drifts - state.budget.drifts);
        state.time - state.landed + drifted > dead_steps()
    }
}
