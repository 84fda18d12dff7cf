//! Orders for programs, from the daemon's wish to the program's end.

use std::collections::{HashMap, VecDeque};

use sanlock_lease::timing::MonoTime;

use super::{Program, Purpose};

/// Programs that wait for the helper; as many as there may be clients, and some for lockspaces.
const WAITING_MAX: usize = 2048;
/// For how long the helper may fetch nothing while an order waits, and how old an order may be that it begins with, in milliseconds.
pub(super) const ORDER_LIFE_MS: u64 = 3000;
/// How long after that, in milliseconds, what became of an order must be known: the helper looks at its age, starts the program and
/// reports, and may be kept from that by others.
const REPORT_MS: u64 = 10_000;

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) id: u64,
    pub(super) program: Program,
    queued: MonoTime,
}

/// An order that the helper has, and has not reported of.
#[derive(Debug)]
struct Given {
    id: u64,
    program: Program,
    until: MonoTime,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Orders {
    waiting: VecDeque<Waiting>,
    given: Vec<Given>,
    /// Not started for a reason that may pass.
    refused: Vec<Program>,
    running: HashMap<u64, Program>,
    next_id: u64,
    /// When the helper last fetched one, or another helper was to begin.
    fetched: MonoTime,
}

/// What a look at the orders has found.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Of these nothing was reported for too long.
    pub(super) silent: Vec<Program>,
    /// Whether orders wait, this many, and the helper does not fetch them.
    pub(super) unfetched: Option<usize>,
    /// Not started for a reason that may pass, as was logged.
    pub(super) refused: Vec<Program>,
}

/// Whether what kept a program from being started may not be there the next time: too many programs or processes, no memory or descriptor,
/// or an order that had become too old on its way.
fn may_pass(errno: i32) -> bool {
    // The process has just ended: another one that has its connection may be left.
    let gone = errno == libc::ESRCH;
    gone || matches!(errno, libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ETIMEDOUT)
}

impl Orders {
    /// # Errors
    /// Too many wait.
    pub(super) fn push(&mut self, now: MonoTime, program: Program) -> Result<(), Program> {
        if self.waiting.len() >= WAITING_MAX {
            return Err(program);
        }
        self.next_id += 1;
        self.waiting.push_back(Waiting { id: self.next_id, program, queued: now });
        Ok(())
    }

    /// Drops those that are not wanted any more, unless the helper has them already.
    pub(super) fn cancel(&mut self, unwanted: impl Fn(Purpose) -> bool) {
        self.waiting.retain(|order| !unwanted(order.program.purpose));
        self.refused.retain(|program| !unwanted(program.purpose));
    }

    pub(super) fn any_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The helper is ready for the next one.
    pub(super) fn fetch(&mut self, now: MonoTime) -> Option<Waiting> {
        self.fetched = now;
        self.waiting.pop_front()
    }

    /// The helper has this one; it is not to begin with it after `until`.
    pub(super) fn given(&mut self, Waiting { id, program, .. }: Waiting, until: MonoTime) {
        self.given.push(Given { id, program, until });
    }

    /// The helper could not be given this one.
    pub(super) fn put_back(&mut self, order: Waiting) {
        self.waiting.push_front(order);
    }

    fn take_given(&mut self, id: u64) -> Option<Program> {
        let at = self.given.iter().position(|order| order.id == id)?;
        Some(self.given.swap_remove(at).program)
    }

    /// Its program runs.
    pub(super) fn started(&mut self, id: u64) -> Option<Purpose> {
        let program = self.take_given(id)?;
        let purpose = program.purpose;
        self.running.insert(id, program);
        Some(purpose)
    }

    /// Its program was not started, or could not be executed. One that was not for a reason that may pass is lost: whoever wanted it may
    /// want it again.
    pub(super) fn refused(&mut self, id: u64, errno: i32) -> Option<Purpose> {
        if !may_pass(errno) {
            let running = self.running.get(&id).map(|program| program.purpose);
            return self.take_given(id).map(|program| program.purpose).or(running);
        }
        // As a rule it is known by now that there is a process for it, which then could not become the program.
        let program = self.take_given(id).or_else(|| self.running.remove(&id))?;
        let purpose = program.purpose;
        self.refused.push(program);
        Some(purpose)
    }

    /// Its program has ended.
    pub(super) fn ended(&mut self, id: u64) -> Option<Purpose> {
        self.running.remove(&id).map(|program| program.purpose)
    }

    /// What ran under a helper that has ended.
    pub(super) fn forget_running(&mut self) -> impl Iterator<Item = Purpose> + '_ {
        self.running.drain().map(|(_, program)| program.purpose)
    }

    /// What has come to nothing by now. Orders that wait go on waiting, however many there are and however long they take: that the helper
    /// is busy is no reason to replace it, and whoever wants one no more cancels it.
    pub(super) fn lost(&mut self, now: MonoTime) -> Lost {
        let overdue = |since: MonoTime| since.plus_millis(ORDER_LIFE_MS) <= now;
        let stuck = overdue(self.fetched) && self.waiting.front().is_some_and(|order| overdue(order.queued));
        if stuck {
            self.fetched = now;
        }
        let silent = |order: &Given| order.until.plus_millis(REPORT_MS) <= now;
        let (silent, given) = self.given.drain(..).partition::<Vec<_>, _>(silent);
        self.given = given;
        Lost {
            silent: silent.into_iter().map(|order| order.program).collect(),
            unfetched: stuck.then_some(self.waiting.len()),
            refused: std::mem::take(&mut self.refused),
        }
    }

    /// Nobody will fetch any.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = Program> + '_ {
        self.waiting.drain(..).map(|order| order.program)
    }

    /// Whether the helper has still to begin with one of these.
    pub(super) fn any_open(&self, wanted: impl Fn(Purpose) -> bool) -> bool {
        let waiting = self.waiting.iter().map(|order| &order.program);
        waiting.chain(self.given.iter().map(|order| &order.program)).any(|program| wanted(program.purpose))
    }

    /// Those of which a look has still to be taken: they wait, or the helper has them and has not begun, or they came to nothing.
    pub(super) fn open(&self) -> usize {
        self.waiting.len() + self.given.len() + self.refused.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_manager::{ConnId, LockspaceId};

    const T0: MonoTime = MonoTime::from_secs(5);

    fn program(purpose: Purpose) -> Program {
        Program { purpose, words: vec![b"/bin/p".to_vec()], since: T0 }
    }

    fn given(orders: &mut Orders, purpose: Purpose) -> u64 {
        orders.push(T0, program(purpose)).unwrap();
        let order = orders.fetch(T0).unwrap();
        let id = order.id;
        orders.given(order, T0.plus_millis(ORDER_LIFE_MS));
        id
    }

    fn lost(orders: &mut Orders) -> Vec<Purpose> {
        let lost = orders.lost(T0);
        assert!(lost.silent.is_empty() && lost.unfetched.is_none());
        lost.refused.iter().map(|program| program.purpose).collect()
    }

    #[test]
    fn a_program_that_was_refused_for_a_reason_that_may_pass_is_lost_and_not_forgotten() {
        let mut orders = Orders::default();
        let (killpath, on_fail) = (Purpose::Killpath(ConnId(1), 100, None), Purpose::OnFail(LockspaceId(2)));
        for purpose in [killpath, on_fail] {
            for errno in [libc::EAGAIN, libc::ENOMEM, libc::ETIMEDOUT, libc::ESRCH] {
                let id = given(&mut orders, purpose);
                assert_eq!(orders.refused(id, errno), Some(purpose));
                assert_eq!(orders.open(), 1, "somebody has to look at it");
                assert_eq!(lost(&mut orders), [purpose], "{errno}");
                assert_eq!((lost(&mut orders), orders.open()), (vec![], 0), "once");
            }
            // There is no such program.
            let id = given(&mut orders, purpose);
            assert_eq!(orders.refused(id, libc::ENOENT), Some(purpose));
            assert_eq!(lost(&mut orders), []);
        }
    }

    #[test]
    fn a_process_that_could_not_become_the_program_is_lost_for_the_same_reasons() {
        let mut orders = Orders::default();
        let killpath = Purpose::Killpath(ConnId(1), 100, None);
        let id = given(&mut orders, killpath);
        assert_eq!(orders.started(id), Some(killpath));
        assert_eq!(orders.refused(id, libc::ENOMEM), Some(killpath));
        assert_eq!(lost(&mut orders), [killpath]);
        assert_eq!(orders.ended(id), None, "nothing ran");
        let id = given(&mut orders, killpath);
        assert_eq!(orders.started(id), Some(killpath));
        assert_eq!(orders.refused(id, libc::ENOENT), Some(killpath), "the log says of which");
        assert_eq!((lost(&mut orders), orders.ended(id)), (vec![], Some(killpath)));
    }

    #[test]
    fn a_program_that_is_not_wanted_any_more_is_not_lost() {
        let mut orders = Orders::default();
        let killpath = Purpose::Killpath(ConnId(1), 100, None);
        let id = given(&mut orders, killpath);
        orders.refused(id, libc::EAGAIN);
        orders.cancel(|purpose| purpose == killpath);
        assert_eq!(lost(&mut orders), []);
    }

    #[test]
    fn of_an_order_that_the_helper_has_a_report_comes_before_it_is_lost() {
        let mut orders = Orders::default();
        let on_fail = Purpose::OnFail(LockspaceId(2));
        let id = given(&mut orders, on_fail);
        // It began in time, and was kept from saying so.
        let late = T0.plus_millis(ORDER_LIFE_MS + REPORT_MS - 1);
        assert!(orders.lost(late).silent.is_empty());
        assert_eq!(orders.started(id), Some(on_fail));
        given(&mut orders, on_fail);
        assert_eq!(orders.lost(late.plus_millis(1)).silent.len(), 1);
        assert_eq!(orders.open(), 0);
    }

    #[test]
    fn a_helper_that_fetches_is_not_replaced_however_many_wait() {
        let mut orders = Orders::default();
        for conn in 0..100 {
            orders.push(T0, program(Purpose::Killpath(ConnId(conn), 100, None))).unwrap();
        }
        let mut now = T0;
        for _ in 0..50 {
            let order = orders.fetch(now).unwrap();
            orders.given(order, now.plus_millis(ORDER_LIFE_MS));
            now = now.plus_millis(100);
            assert_eq!(orders.lost(now).unfetched, None);
        }
        let stuck = now.plus_millis(ORDER_LIFE_MS);
        assert_eq!(orders.lost(stuck).unfetched, Some(50));
        assert_eq!(
            orders.lost(stuck.plus_millis(ORDER_LIFE_MS - 1)).unfetched,
            None,
            "the next one gets its time"
        );
        assert_eq!(
            orders.lost(stuck.plus_millis(ORDER_LIFE_MS)).unfetched,
            Some(50),
            "nothing is lost by that"
        );
        assert_eq!(orders.give_up().count(), 50);
    }

    #[test]
    fn an_order_that_comes_after_a_long_silence_is_not_overdue() {
        let mut orders = Orders::default();
        let later = T0.plus_secs(1000);
        orders.push(later, program(Purpose::OnFail(LockspaceId(1)))).unwrap();
        assert_eq!(orders.lost(later.plus_millis(ORDER_LIFE_MS - 1)).unfetched, None);
        assert_eq!(orders.lost(later.plus_millis(ORDER_LIFE_MS)).unfetched, Some(1));
    }
}
