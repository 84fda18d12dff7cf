//! The machines of hosts: started, told what happens, woken, and what became of them and of their writes.

use crate::checks::Writer;
use crate::daemon::thread_of;
use crate::disk::Area;
use crate::event::{Event, Io};
use crate::host::{Job, JobKey};
use crate::layout;
use crate::sabotage::Sabotage;
use crate::work::{Next, Outcome, Work};
use crate::world::World;
use sanlock_lease::machine::{Input, LockspaceNow};
use sanlock_lease::paxos::PaxosConfig;
use sanlock_lease::timing::MonoTime;

impl World {
    /// Who works on which resource.
    pub(crate) fn paxos_config(&self, host: usize, generation: u64, resource: u8) -> PaxosConfig {
        let h = &self.hosts[host];
        let config = layout::paxos_config(h.claims, generation, resource, h.io_timeout, h.fire);
        PaxosConfig { geometry: self.settings.geometry, ..config }
    }

    pub(crate) fn writer(&self, host: usize) -> Writer {
        Writer { host: self.hosts[host].id, reference: self.hosts[host].is_reference() }
    }

    /// Starts a machine as this job. The former one under that key, if any, must be done.
    pub(crate) fn start(&mut self, host: usize, key: JobKey, work: Work) {
        let h = &mut self.hosts[host];
        h.serials += 1;
        let serial = h.serials;
        h.jobs.insert(key, Job { work, serial, wait: None, done: false });
        self.deliver(host, key, Input::Start);
    }

    /// Puts a machine that is used many times in its place, not started yet.
    pub(crate) fn add_resident(&mut self, host: usize, key: JobKey, work: Work) {
        let h = &mut self.hosts[host];
        h.serials += 1;
        let serial = h.serials;
        h.jobs.insert(key, Job { work, serial, wait: None, done: true });
    }

    /// What a machine is told of its lockspace, and whether its client lives.
    fn circumstances(&self, host: usize, key: JobKey, now: MonoTime) -> (LockspaceNow, bool) {
        let h = &self.hosts[host];
        if let Some(peer) = &h.peer {
            return (peer.lockspace_now(), true);
        }
        match key {
            JobKey::Task(task) => {
                let task = h.daemon.as_ref().and_then(|d| d.tasks.get(&task));
                let (state, client) = task.map_or((LockspaceNow::Gone, true), |t| t.env(now));
                let generation = task.map_or(0, |t| t.config.generation);
                if self.sabotaged(Sabotage::WritesWhenGone) {
                    return (LockspaceNow::Alive { generation }, client);
                }
                (state, client)
            }
            JobKey::Join(ls) | JobKey::Renewal(ls) | JobKey::Scan(ls) | JobKey::Leave(ls) => {
                (self.wanted(host, ls), true)
            }
            JobKey::Peer(_) | JobKey::Errand(_) => (LockspaceNow::Gone, true),
        }
    }

    /// Tells a machine something and does what it asks for.
    pub(crate) fn deliver(&mut self, host: usize, key: JobKey, input: Input<'_>) {
        let now = self.own_time(host);
        let (lockspace, client_alive) = self.circumstances(host, key, now);
        let mut ops = std::mem::take(&mut self.spare_ops);
        let stepped = self.hosts[host].step(key, now, (lockspace, client_alive), input, &mut ops);
        let Some((next, serial)) = stepped else {
            self.spare_ops = ops;
            return;
        };
        if matches!(next, Next::Io | Next::Wait(_)) {
            self.goes_on(host, key, now);
        }
        if matches!(next, Next::Io) && ops.is_empty() {
            let what = format!(
                "L: {key:?} of {:?} waits for operations that it did not ask for",
                self.hosts[host].id
            );
            self.checks.violated(what);
        }
        for op in &mut ops {
            self.submit(host, key, serial, op);
        }
        ops.clear();
        self.spare_ops = ops;
        match next {
            Next::Io | Next::Pending => {}
            Next::Wait(until) => {
                let (when, epoch) = (self.hosts[host].clock.when(until), self.hosts[host].epoch);
                self.at(when, Event::Wake { host, epoch, job: key, serial });
            }
            Next::Done(outcome, outstanding) => self.finished(host, key, *outcome, outstanding),
        }
    }

    pub(crate) fn wake(&mut self, host: usize, key: JobKey, serial: u32) {
        let h = &self.hosts[host];
        let now = h.clock.at(self.now);
        let job = h.jobs.get(&key).filter(|j| j.serial == serial);
        let due = job.is_some_and(|j| j.wait.is_some_and(|until| until <= now));
        if due && self.runs(host, thread_of(key)) {
            self.deliver(host, key, Input::Tick);
        }
        // A paused daemon looks at its timers when it goes on.
    }

    fn finished(&mut self, host: usize, key: JobKey, outcome: Outcome, outstanding: u32) {
        if let Some(job) = self.hosts[host].jobs.get_mut(&key) {
            job.done = true;
            job.wait = None;
        }
        let late = self.late_writes(host, key);
        if usize::try_from(outstanding) != Ok(late) && !self.hosts[host].is_reference() {
            self.checks.violated(format!("{key:?} says {outstanding} writes are outstanding, {late} are"));
        }
        self.say(|w| format!("{:?} {key:?} done: {outcome:?}, {outstanding} outstanding", w.hosts[host].id));
        if self.hosts[host].is_reference() {
            return self.peer_done(host, key, outcome);
        }
        match key {
            JobKey::Join(ls) | JobKey::Renewal(ls) | JobKey::Scan(ls) | JobKey::Leave(ls) => {
                self.worker_done(host, ls, outcome);
            }
            JobKey::Task(task) => self.task_done(host, task, outcome),
            JobKey::Errand(errand) => self.errand_done(host, errand, outcome),
            JobKey::Peer(_) => {}
        }
    }

    /// The operations in flight.
    pub(crate) fn flying(&self) -> impl Iterator<Item = &Io> {
        self.ios.values().map(AsRef::as_ref)
    }

    /// Writes of a job whose timeout, or doubt, was reported and whose completion was not. Renewals know of one in doubt, the last.
    pub(crate) fn late_writes(&self, host: usize, key: JobKey) -> usize {
        let h = &self.hosts[host];
        let serial = h.jobs.get(&key).map(|j| j.serial);
        let late = |io: &&Io| {
            io.host == host
                && io.epoch == h.epoch
                && io.job == key
                && Some(io.serial) == serial
                && io.timed_out
        };
        let (doubtful, late): (Vec<_>, Vec<_>) =
            self.flying().filter(late).filter(|io| io.is_write()).partition(|io| io.doubtful);
        let known = if matches!(key, JobKey::Renewal(_)) { doubtful.len().min(1) } else { doubtful.len() };
        late.len() + known
    }

    /// Writes of a job that have not completed, reported as timed out or not.
    pub(crate) fn writes_of(&self, host: usize, key: JobKey) -> usize {
        let Some(job) = self.hosts[host].jobs.get(&key) else { return 0 };
        let its = |io: &&Io| io.host == host && io.job == key && io.serial == job.serial && io.is_write();
        self.flying().filter(its).count()
    }

    /// Writes of a host to a resource, of any life, that have not ended.
    pub(crate) fn resource_writes(&self, host: usize, resource: u8) -> usize {
        self.to_resource(host, resource).count()
    }

    /// The same, with the host id that it has now: what an earlier daemon wrote with another one is another host's.
    pub(crate) fn resource_writes_as_now(&self, host: usize, resource: u8) -> usize {
        self.to_resource(host, resource).filter(|io| io.claims == self.hosts[host].claims).count()
    }

    fn to_resource(&self, host: usize, resource: u8) -> impl Iterator<Item = &Io> {
        self.flying().filter(move |io| {
            let its = matches!(io.area, Area::Resource(r, _) if r == resource);
            io.host == host && its && io.is_write() && !io.is_request()
        })
    }

    /// Writes of a host, of any life, that have not ended. What has failed in doubt has.
    pub(crate) fn writes_in_flight(&self, host: usize) -> usize {
        self.flying().filter(|io| io.host == host && io.is_write() && !io.doubtful).count()
    }
}
