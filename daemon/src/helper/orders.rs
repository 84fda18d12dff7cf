//! Orders for programs, from the daemon's wish to the program's end.

use std::collections::{HashMap, VecDeque};

use sanlock_lease::timing::MonoTime;

use super::{Program, Purpose};

/// Programs that wait for the helper; as many as there may be clients, and some for lockspaces.
const WAITING_MAX: usize = 2048;
/// How long an order may wait, in milliseconds. Older ones are given up; killing then tries again.
pub(super) const ORDER_LIFE_MS: u64 = 3000;

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) id: u64,
    pub(super) program: Program,
    pub(super) until: MonoTime,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Orders {
    waiting: VecDeque<Waiting>,
    /// Given to the helper, not yet reported as started.
    given: Vec<Waiting>,
    /// Not started for a reason that may pass.
    refused: Vec<Program>,
    running: HashMap<u64, Purpose>,
    next_id: u64,
}

/// Orders that came to nothing.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Not started in time.
    pub(super) late: Vec<Program>,
    /// Whether the helper has not even fetched one of them.
    pub(super) unfetched: bool,
    /// Not started for a reason that may pass, as was logged.
    pub(super) refused: Vec<Program>,
}

/// Whether what kept a program from being started may not be there the next time: too many programs or processes, no memory or descriptor,
/// or an order that had become too old on its way.
fn may_pass(errno: i32) -> bool {
    matches!(errno, libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ETIMEDOUT)
}

impl Orders {
    /// # Errors
    /// Too many wait.
    pub(super) fn push(&mut self, now: MonoTime, program: Program) -> Result<(), Program> {
        if self.waiting.len() >= WAITING_MAX {
            return Err(program);
        }
        self.next_id += 1;
        let until = now.plus_millis(ORDER_LIFE_MS);
        self.waiting.push_back(Waiting { id: self.next_id, program, until });
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

    /// The next one that is not too old; the others are lost with the next look at them.
    pub(super) fn next(&mut self, now: MonoTime) -> Option<Waiting> {
        while let Some(order) = self.waiting.pop_front() {
            if order.until > now {
                return Some(order);
            }
            self.given.push(order);
        }
        None
    }

    /// The helper has this one.
    pub(super) fn given(&mut self, order: Waiting) {
        self.given.push(order);
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
        let purpose = self.take_given(id)?.purpose;
        self.running.insert(id, purpose);
        Some(purpose)
    }

    /// Its program was not started, or could not be executed. One that was not for a reason that may pass is lost: whoever wanted it may
    /// want it again.
    pub(super) fn refused(&mut self, id: u64, errno: i32) -> Option<Purpose> {
        let Some(program) = self.take_given(id) else { return self.running.get(&id).copied() };
        let purpose = program.purpose;
        if may_pass(errno) {
            self.refused.push(program);
        }
        Some(purpose)
    }

    /// Its program has ended.
    pub(super) fn ended(&mut self, id: u64) -> Option<Purpose> {
        self.running.remove(&id)
    }

    /// What ran under a helper that has ended.
    pub(super) fn forget_running(&mut self) -> impl Iterator<Item = Purpose> + '_ {
        self.running.drain().map(|(_, purpose)| purpose)
    }

    /// Gives up those that have come to nothing by now.
    pub(super) fn lost(&mut self, now: MonoTime) -> Lost {
        let mut lost = Lost { refused: std::mem::take(&mut self.refused), ..Lost::default() };
        while self.waiting.front().is_some_and(|order| order.until <= now) {
            lost.unfetched = true;
            lost.late.extend(self.waiting.pop_front().map(|order| order.program));
        }
        let (late, given) = self.given.drain(..).partition::<Vec<_>, _>(|order| order.until <= now);
        self.given = given;
        lost.late.extend(late.into_iter().map(|order| order.program));
        lost
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
        let order = orders.next(T0).unwrap();
        let id = order.id;
        orders.given(order);
        id
    }

    fn lost(orders: &mut Orders) -> Vec<Purpose> {
        let lost = orders.lost(T0);
        assert!(lost.late.is_empty() && !lost.unfetched);
        lost.refused.iter().map(|program| program.purpose).collect()
    }

    #[test]
    fn a_program_that_was_refused_for_a_reason_that_may_pass_is_lost_and_not_forgotten() {
        let mut orders = Orders::default();
        let (killpath, on_fail) = (Purpose::Killpath(ConnId(1), 100), Purpose::OnFail(LockspaceId(2)));
        for purpose in [killpath, on_fail] {
            for errno in [libc::EAGAIN, libc::ENOMEM, libc::ETIMEDOUT] {
                let id = given(&mut orders, purpose);
                assert_eq!(orders.refused(id, errno), Some(purpose));
                assert_eq!(orders.open(), 1, "somebody has to look at it");
                assert_eq!(lost(&mut orders), [purpose], "{errno}");
                assert_eq!((lost(&mut orders), orders.open()), (vec![], 0), "once");
            }
            // Nobody is left to be killed; there is no such program.
            for errno in [libc::ESRCH, libc::ENOENT] {
                let id = given(&mut orders, purpose);
                assert_eq!(orders.refused(id, errno), Some(purpose));
                assert_eq!(lost(&mut orders), [], "{errno}");
            }
        }
    }

    #[test]
    fn a_program_that_was_started_or_is_not_wanted_any_more_is_not_lost() {
        let mut orders = Orders::default();
        let killpath = Purpose::Killpath(ConnId(1), 100);
        let id = given(&mut orders, killpath);
        assert_eq!(orders.started(id), Some(killpath));
        assert_eq!(orders.refused(id, libc::EAGAIN), Some(killpath), "the log says of which");
        assert_eq!((lost(&mut orders), orders.ended(id)), (vec![], Some(killpath)));
        let id = given(&mut orders, killpath);
        orders.refused(id, libc::EAGAIN);
        orders.cancel(|purpose| purpose == killpath);
        assert_eq!(lost(&mut orders), []);
    }

    #[test]
    fn what_was_not_started_in_time_is_lost_and_what_was_not_fetched_is_the_helpers_fault() {
        let mut orders = Orders::default();
        let killpath = Purpose::Killpath(ConnId(1), 100);
        given(&mut orders, killpath);
        assert!(orders.lost(T0.plus_millis(ORDER_LIFE_MS - 1)).late.is_empty());
        let late = orders.lost(T0.plus_millis(ORDER_LIFE_MS));
        assert_eq!((late.late.len(), late.unfetched), (1, false));
        orders.push(T0, program(killpath)).unwrap();
        let late = orders.lost(T0.plus_millis(ORDER_LIFE_MS));
        assert_eq!((late.late.len(), late.unfetched), (1, true));
        assert_eq!(orders.open(), 0);
    }
}
