//! What a claimant and the watcher do in one step.

use super::Property;
use super::claimant::{Claimant, Member, Running, Task, User};
use super::settings::{Rejoin, Twist};
use super::watcher::{CLAIMED, Ran, WATCHER, Watcher, run};
use super::world::{Action, Event, Shared, State, World, fire, io_timeout};
use crate::disk::host_id;
use sanlock_lease::code::ReturnCode;
use sanlock_lease::delta::JoinOutcome;
use sanlock_lease::delta::{DeltaAcquire, Instance, JoinError, LeaveError, RenewOutcome, Renewal};
use sanlock_lease::machine::{
    self, Content, Env, HostView, Input, LockspaceNow, Machine, NoHosts, NoSectors, Op, Step,
};
use sanlock_lease::paxos::acquire::AcquireOptions;
use sanlock_lease::paxos::{PaxosAcquire, PaxosConfig};
use sanlock_lease::recovery::{self, Killpath, Lockspace, Progress, Renewals, Restrictions, Stage};
use sanlock_lease::timing::MonoTime;
use sanlock_sim::layout;

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Landed,
    Over,
}

/// What a machine said.
enum Told {
    Io(Vec<Op>),
    Wait(MonoTime),
    Pending,
    Joined(Box<JoinOutcome>),
    Renewed(Box<RenewOutcome>),
    Left(Result<(), LeaveError>),
}

fn told<O>(step: Step<O>, done: impl FnOnce(O) -> Told) -> Told {
    match step {
        Step::Io(ops) => Told::Io(ops.into_iter().collect()),
        Step::Wait(until) => Told::Wait(until),
        Step::Pending => Told::Pending,
        Step::Done { outcome, .. } => done(outcome),
    }
}

impl World {
    /// What may happen to a claimant. Returns whether something of it is urgent.
    pub(super) fn claimant_actions(&self, state: &State, who: u8, into: &mut Vec<Action>) -> bool {
        let claimant = self.claimants.get(state.claimants[usize::from(who)]);
        let now = self.clock_of(state, claimant);
        let faults = state.time <= self.settings.faults_until;
        let budget = if faults { state.budget } else { super::Budget::default() };
        let mut may = |event| into.push(Action { who, event });
        let mut urgent = false;
        if claimant.fires(fire().secs()).is_some_and(|at| at <= now)
            && self.settings.twist != Twist::NoWatchdog
        {
            may(Event::Fire);
            return true;
        }
        let idle = claimant.task == Task::Nothing && claimant.starts > 0;
        // R3: of a daemon that knows of a write that has not ended.
        let settled = claimant.running.iter().all(|r| r.op.is_none());
        let restarted = claimant.died.is_none_or(|second| now.secs() > second);
        if idle && settled && restarted && state.time <= self.settings.start_until {
            may(Event::Start);
        }
        for (number, running) in claimant.running.iter().enumerate() {
            let number = u8::try_from(number).unwrap_or(u8::MAX);
            if claimant.frozen {
                break;
            }
            may(Event::Complete(number));
            if !running.hung {
                urgent = true;
                if budget.hangs > 0 {
                    may(Event::Hang(number));
                }
            } else if running.op.is_some() && !running.over && running.deadline <= now {
                may(Event::Over(number));
                urgent = true;
            }
        }
        if claimant.frozen {
            may(Event::Thaw);
            return false;
        }
        if self.due(claimant, now) {
            may(Event::Due);
            urgent = true;
        }
        let busy = claimant.task != Task::Nothing;
        if busy && budget.deaths > 0 {
            may(Event::Death);
        }
        if busy && budget.resets > 0 {
            may(Event::Reset);
        }
        if claimant.user.is_some_and(|user| user.signalled || claimant.task == Task::Nothing) {
            may(Event::UserEnds);
        }
        if claimant.member().is_some_and(|m| !m.leaving) && budget.leaves > 0 {
            may(Event::Leave);
        }
        if claimant.member().is_some() && claimant.running.iter().all(|r| r.hung) && budget.freezes > 0 {
            may(Event::Freeze);
        }
        let joins = matches!(claimant.task, Task::Joining(_));
        if joins && budget.early_freezes > 0 && claimant.running.iter().all(|r| !r.hung) {
            may(Event::FreezeBefore);
            if !claimant.running.is_empty() {
                may(Event::FreezeAfter);
            }
        }
        if busy && budget.drifts > 0 {
            may(Event::Gain);
            may(Event::Fall);
        }
        urgent
    }

    /// Whether a timer is due.
    fn due(&self, claimant: &Claimant, now: MonoTime) -> bool {
        let woken = claimant.wake.is_some_and(|wake| wake <= now);
        let member = claimant.member().is_some_and(|m| {
            let renew = !m.attempting
                && !m.stopping
                && m.renewal.corrupt().is_none()
                && m.renewal.due() <= now
                && self.settings.twist != Twist::NoRenewals;
            renew || (m.asked < now && self.settings.twist != Twist::NoRecovery)
        });
        woken || member
    }

    pub(super) fn claim(&mut self, state: &mut State, action: Action, broken: &mut Vec<Property>) {
        let who = usize::from(action.who);
        let mut claimant = Claimant::clone(self.claimants.get(state.claimants[who]));
        let now = self.clock_of(state, &claimant);
        let budget = &mut state.budget;
        match action.event {
            Event::Start => self.start(state, &mut claimant, now),
            Event::Complete(number) => {
                let running = claimant.running.remove(usize::from(number));
                if let Some(content) = running.write.filter(|_| running.found.is_none()) {
                    let late = running.hung || running.held_up;
                    self.land(state, who, (content, late), broken);
                }
                self.ended(state, &mut claimant, now, running, End::Landed);
            }
            Event::Hang(number) => {
                budget.hangs -= 1;
                claimant.running[usize::from(number)].hung = true;
            }
            Event::Over(number) => {
                let number = usize::from(number);
                claimant.running[number].over = true;
                let running = claimant.running[number];
                self.ended(state, &mut claimant, now, running, End::Over);
            }
            Event::Due => self.serve(state, &mut claimant, now),
            Event::Death => {
                budget.deaths -= 1;
                self.marks.died_with_process += u64::from(claimant.user.is_some());
                claimant.die();
                claimant.died = Some(now.secs());
            }
            Event::Reset => {
                budget.resets -= 1;
                claimant.reset();
            }
            Event::Fire => {
                self.marks.fired += 1;
                claimant.reset();
            }
            Event::UserEnds => {
                self.marks.ended_by_force += 1;
                claimant.user = None;
            }
            Event::Leave => {
                budget.leaves -= 1;
                // The resource is left as it is: the freed host id frees it.
                claimant.user = None;
                if let Task::Joined(member) = &mut claimant.task {
                    member.leaving = true;
                }
            }
            Event::Freeze => {
                budget.freezes -= 1;
                claimant.frozen = true;
            }
            Event::FreezeBefore => {
                budget.early_freezes -= 1;
                claimant.frozen = true;
                claimant.running.iter_mut().for_each(|r| r.held_up = true);
            }
            Event::FreezeAfter => {
                budget.early_freezes -= 1;
                claimant.frozen = true;
                for number in 0..claimant.running.len() {
                    if let Some(content) = claimant.running[number].write {
                        self.land(state, who, (content, false), broken);
                    }
                    claimant.running[number].found = Some(state.delta);
                }
            }
            Event::Thaw => claimant.frozen = false,
            Event::Gain | Event::Fall => {
                budget.drifts -= 1;
                claimant.ahead += if action.event == Event::Gain { 1 } else { -1 };
            }
            Event::Time | Event::Look | Event::Want | Event::Poll => {}
        }
        state.claimants[who] = self.claimants.number(claimant);
    }

    fn start(&mut self, state: &mut State, claimant: &mut Claimant, now: MonoTime) {
        claimant.starts -= 1;
        claimant.died = None;
        let record = self.record(state.delta);
        let fast = match self.settings.rejoin {
            Rejoin::Vouched => claimant.vouched,
            // It takes whatever has its name.
            Rejoin::ByName => Some(record.owner_generation.get()),
        };
        let config = self.config(claimant.number);
        let named = config.host_name.matches(&record.resource_name);
        if named && record.timestamp.get() != 0 && fast == Some(record.owner_generation.get()) {
            self.marks.joined_fast += 1;
        }
        let earlier = Instance { generation: claimant.recorded, io_timeout: config.io_timeout };
        let earlier = Some(earlier).filter(|earlier| earlier.generation > 0);
        let machine = DeltaAcquire::new(config, fast).remembering(earlier);
        claimant.task = Task::Joining(Box::new(machine));
        self.tell(state, claimant, now, Input::Start);
    }

    /// Something has become of an operation.
    fn ended(
        &mut self,
        state: &mut State,
        claimant: &mut Claimant,
        now: MonoTime,
        running: Running,
        end: End,
    ) {
        let Some(op) = running.op else { return };
        let sector = World::watcher_sector(state.time);
        let contents = std::mem::take(&mut self.contents);
        let shared = Shared { delta: running.found.unwrap_or(state.delta), watcher: &sector };
        let area = shared.area(&contents).range(running.range.0, running.range.1);
        let view: machine::View<'_> = if running.write.is_some() { &NoSectors } else { &area };
        let told = match (end, running.over) {
            (End::Over, _) => Self::step(claimant, now, Input::TimedOut { op }),
            (End::Landed, true) => Self::step(claimant, now, Input::CompletedLate { op, result: Ok(view) }),
            (End::Landed, false) => Self::step(claimant, now, Input::Completed { op, result: Ok(view) }),
        };
        self.contents = contents;
        self.follow(state, claimant, now, told);
    }

    fn tell(&mut self, state: &mut State, claimant: &mut Claimant, now: MonoTime, input: Input<'_>) {
        let told = Self::step(claimant, now, input);
        self.follow(state, claimant, now, told);
    }

    fn step(claimant: &mut Claimant, now: MonoTime, input: Input<'_>) -> Told {
        let lockspace = LockspaceNow::Alive { generation: claimant.recorded };
        let env = Env { lockspace, client_alive: true, shutting_down: false, hosts: &NoHosts };
        match &mut claimant.task {
            Task::Nothing => Told::Pending,
            Task::Joining(machine) => told(machine.step(now, &env, input), |o| Told::Joined(Box::new(o))),
            Task::Joined(member) => {
                told(member.renewal.step(now, &env, input), |o| Told::Renewed(Box::new(o)))
            }
            Task::Leaving(machine) => told(machine.step(now, &env, input), Told::Left),
        }
    }

    fn follow(&mut self, state: &mut State, claimant: &mut Claimant, now: MonoTime, told: Told) {
        match told {
            Told::Io(ops) => {
                claimant.wake = None;
                for op in ops {
                    let (write, range) = match op.action {
                        machine::Action::Write { content, .. } => {
                            let content = self.bent(content);
                            (Some(self.contents.number(&content)), (0, 0))
                        }
                        machine::Action::Read { first, count } => (None, (first, count)),
                    };
                    let deadline = op.deadline;
                    let op = Some(op.id);
                    claimant.running.push(Running {
                        op,
                        write,
                        range,
                        deadline,
                        found: None,
                        held_up: false,
                        hung: false,
                        over: false,
                    });
                }
            }
            Told::Wait(until) => claimant.wake = Some(until),
            Told::Pending => {}
            Told::Joined(outcome) => self.joined(state, claimant, now, *outcome),
            Told::Renewed(outcome) => self.renewed(claimant, *outcome),
            Told::Left(result) => {
                self.marks.released_id += u64::from(result.is_ok());
                claimant.left();
            }
        }
    }

    /// What is written in place of this.
    fn bent(&self, content: Content) -> Content {
        match content {
            Content::Delta { mut leader, bitmap }
                if self.settings.twist == Twist::OldGenerations && leader.owner_generation.get() > 1 =>
            {
                leader.owner_generation = (leader.owner_generation.get() - 2).into();
                leader.seal();
                Content::Delta { leader, bitmap }
            }
            content => content,
        }
    }

    fn joined(&mut self, state: &mut State, claimant: &mut Claimant, now: MonoTime, outcome: JoinOutcome) {
        claimant.wake = None;
        let joined = match outcome {
            Ok(joined) => joined,
            Err(error) => {
                self.marks.refused_busy += u64::from(matches!(error, JoinError::Busy { .. }));
                self.marks.lost_race += u64::from(matches!(error, JoinError::Lost { .. }));
                self.marks.stood_still += u64::from(matches!(error, JoinError::StoodStill { .. }));
                claimant.detach();
                claimant.task = Task::Nothing;
                return;
            }
        };
        self.marks.joined += 1;
        self.marks.rejoined_beside_process += u64::from(claimant.user.is_some());
        claimant.detach();
        claimant.recorded = joined.generation();
        claimant.vouched = None;
        claimant.expiries[1] = Some(joined.last_good.plus_secs(io_timeout().renewal_fail_secs()));
        let renewal = Renewal::new(self.config(claimant.number), &joined);
        claimant.task = Task::Joined(Box::new(Member {
            renewal,
            attempting: false,
            stopping: false,
            progress: Progress::default(),
            leaving: false,
            asked: now,
        }));
        if claimant.user.is_none() {
            self.take_resource(state, claimant, now);
        }
    }

    fn paxos_config(host: usize, generation: u64) -> PaxosConfig {
        layout::paxos_config(host_id(host), generation, 0, io_timeout(), fire())
    }

    /// The process of a claimant that has just joined takes the resource if it can.
    fn take_resource(&mut self, state: &mut State, claimant: &mut Claimant, now: MonoTime) {
        let options = AcquireOptions { owner_nowait: true, ..AcquireOptions::default() };
        let mut machine = PaxosAcquire::new(Self::paxos_config(CLAIMED, claimant.recorded), options);
        let lockspace = LockspaceNow::Alive { generation: claimant.recorded };
        let env = Env { lockspace, client_alive: true, shutting_down: false, hosts: &NoHosts };
        if let Ran::Acquired = self.run_resource(state, &mut machine, (now, &env), Input::Start) {
            self.marks.resource_taken += 1;
            claimant.user = Some(User { generation: claimant.recorded, signalled: false });
        }
    }

    fn run_resource(
        &mut self,
        state: &mut State,
        machine: &mut PaxosAcquire,
        at: (MonoTime, &Env<'_>),
        input: Input<'_>,
    ) -> Ran {
        let sector = Self::watcher_sector(state.time);
        let shared = Shared { delta: state.delta, watcher: &sector };
        let mut resource = **self.resources.get(state.resource);
        let ran = run(machine, at, input, &shared, &mut self.contents, &mut resource);
        state.resource = self.resources.number(resource);
        ran
    }

    fn renewed(&mut self, claimant: &mut Claimant, outcome: RenewOutcome) {
        claimant.wake = None;
        let Task::Joined(member) = &mut claimant.task else { return };
        member.attempting = false;
        match outcome {
            RenewOutcome::Renewed(renewed) => {
                self.marks.renewed += 1;
                self.marks.renewed_late += u64::from(renewed.late_read || renewed.late_write);
                // What a failed lockspace renews keeps no watchdog quiet.
                if member.progress.stage == Stage::Alive && member.renewal.corrupt().is_none() {
                    let expiry = renewed.last_good.plus_secs(io_timeout().renewal_fail_secs());
                    claimant.expiries[1] = Some(expiry);
                }
            }
            RenewOutcome::Failed(_) => {}
            RenewOutcome::Corrupt(_) => self.marks.corrupt += 1,
        }
    }

    /// Whatever timer is due.
    fn serve(&mut self, state: &mut State, claimant: &mut Claimant, now: MonoTime) {
        if claimant.wake.is_some_and(|wake| wake <= now) {
            claimant.wake = None;
            return self.tell(state, claimant, now, Input::Tick);
        }
        let Task::Joined(member) = &mut claimant.task else { return };
        let renews = self.settings.twist != Twist::NoRenewals;
        let due = renews && !member.attempting && !member.stopping && member.renewal.corrupt().is_none();
        if due && member.renewal.due() <= now {
            member.attempting = true;
            return self.tell(state, claimant, now, Input::Start);
        }
        self.recover(state, claimant, now);
    }

    fn recover(&mut self, state: &mut State, claimant: &mut Claimant, now: MonoTime) {
        let Task::Joined(member) = &mut claimant.task else { return };
        member.asked = now;
        let renewals = if member.stopping && !member.attempting {
            Renewals::Stopped { releasable: member.renewal.release().is_some() }
        } else {
            Renewals::Running
        };
        let lockspace = Lockspace {
            io_timeout: io_timeout(),
            grace_secs: 0,
            hard_from: None,
            last_good: member.renewal.last_good(),
            corrupt: member.renewal.corrupt().as_ref().map(ReturnCode::from),
            removal: member.leaving,
            held: false,
            writes_outstanding: false,
            renewals,
            progress: member.progress,
        };
        let users: Vec<recovery::User<()>> = claimant.user.iter().map(|_| process()).collect();
        let mut actions = Vec::new();
        member.progress = recovery::decide(now, &lockspace, &users, &mut actions);
        for action in actions {
            match action {
                recovery::Action::Fail(_) => self.marks.failed += 1,
                recovery::Action::Attempt { .. } => {
                    claimant.user = claimant.user.map(|user| User { signalled: true, ..user });
                }
                recovery::Action::StopRenewals => {
                    if let Task::Joined(member) = &mut claimant.task {
                        member.stopping = true;
                    }
                }
                recovery::Action::Release => {
                    let Task::Joined(member) = &claimant.task else { return };
                    let Some(machine) = member.renewal.release() else { return };
                    claimant.detach();
                    claimant.task = Task::Leaving(Box::new(machine));
                    return self.tell(state, claimant, now, Input::Start);
                }
                recovery::Action::Remove => return claimant.left(),
                recovery::Action::Warn { .. }
                | recovery::Action::Notice { .. }
                | recovery::Action::Stuck { .. } => {}
            }
        }
    }

    pub(super) fn watch(&mut self, state: &mut State, event: Event, broken: &mut Vec<Property>) {
        let mut watcher = Watcher::clone(self.watchers.get(state.watcher));
        let now = Self::clock(state.time, 0);
        if event == Event::Look {
            let sector = Self::watcher_sector(state.time);
            let shared = Shared { delta: state.delta, watcher: &sector };
            watcher.look(now, &shared.area(&self.contents));
            watcher.next_scan = now.plus_secs(io_timeout().renewal_secs());
        } else {
            let table = watcher.scan.table().clone();
            let hosts: &dyn HostView = &table;
            let lockspace = LockspaceNow::Alive { generation: 1 };
            let env = Env { lockspace, client_alive: true, shutting_down: false, hosts };
            let input = if event == Event::Want { Input::Start } else { Input::Tick };
            let new = || {
                let config = Self::paxos_config(WATCHER, 1);
                Box::new(PaxosAcquire::new(config, AcquireOptions::default()))
            };
            let mut machine = watcher.acquire.take().unwrap_or_else(new);
            watcher.tried = true;
            watcher.wake = None;
            let owner = self.contents.leader(self.resources.get(state.resource).leader);
            match self.run_resource(state, &mut machine, (now, &env), input) {
                Ran::Waits(until) => {
                    watcher.wake = Some(until);
                    watcher.acquire = Some(machine);
                }
                Ran::Acquired => {
                    watcher.holds = true;
                    self.taken(state, &owner, broken);
                }
                Ran::Failed => {}
            }
        }
        state.watcher = self.watchers.number(watcher);
    }

    /// The watcher has the resource that this leader gave to somebody.
    fn taken(&mut self, state: &State, owner: &sanlock_lease::record::RawLeader, broken: &mut Vec<Property>) {
        if owner.timestamp.get() == 0 {
            return;
        }
        let record = self.record(state.delta);
        let (held, on_disk) = (owner.owner_generation.get(), record.owner_generation.get());
        if record.timestamp.get() == 0 {
            self.marks.watcher_took_from_free += 1;
        } else if on_disk > held {
            self.marks.watcher_took_after_rejoin += 1;
        } else {
            self.marks.watcher_took_from_dead += 1;
            if !self.silent(state) {
                broken.push(Property::OwnersAreSilent);
            }
        }
    }
}

/// A process with the lease.
fn process() -> recovery::User<()> {
    recovery::User {
        key: (),
        connection_open: true,
        process_alive: true,
        attempts: 0,
        last_attempt: None,
        hard: false,
        restrictions: Restrictions::default(),
        killpath: Killpath::None,
    }
}
