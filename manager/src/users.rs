//! What is heard of a lockspace's renewals (lease-algorithms.md 2.4, 10.5).

use crate::action::Action;
use crate::ids::LockspaceId;
use crate::lockspaces::push_history;
use crate::state::RenewalEntry;
use crate::{Level, Manager, log};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::timing::MonoTime;

impl Manager {
    pub(crate) fn renewed(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        timestamp: MonoTime,
        (read_ms, write_ms): (u64, u64),
        out: &mut Vec<Action>,
    ) {
        let size = self.settings.history_size;
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        lockspace.last_result = 1;
        lockspace.last_attempt = now.secs();
        if lockspace.corrupt != 0 {
            return;
        }
        lockspace.last_good = lockspace.last_good.max(Some(timestamp));
        let entry =
            RenewalEntry { timestamp: timestamp.secs(), read_ms, write_ms, next_timeouts: 0, next_errors: 0 };
        push_history(lockspace, size, entry);
        self.watchdog_live(ls, timestamp, out);
    }

    pub(crate) fn renewal_failed(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        code: i32,
        text: &str,
        out: &mut Vec<Action>,
    ) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        lockspace.last_result = code;
        lockspace.last_attempt = now.secs();
        lockspace.last_error = Some(format!("{text} ({code})"));
        if let Some(entry) = lockspace.history.back_mut() {
            if code == ReturnCode::AIO_TIMEOUT.0 {
                entry.next_timeouts = entry.next_timeouts.saturating_add(1);
            } else {
                entry.next_errors = entry.next_errors.saturating_add(1);
            }
        }
        let age = lockspace.last_good.map_or(0, |good| now.secs_since(good));
        log(
            out,
            Level::Error,
            Some(ls),
            format!("renewal failed, last good one {age} s ago: {text} ({code})"),
        );
    }

    pub(crate) fn corrupt(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        code: i32,
        text: &str,
        out: &mut Vec<Action>,
    ) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        lockspace.last_result = code;
        lockspace.last_attempt = now.secs();
        if lockspace.corrupt == 0 {
            lockspace.corrupt = code;
            lockspace.last_error = Some(format!("{text} ({code})"));
            log(
                out,
                Level::Error,
                Some(ls),
                format!("the host_id lease is not ours any more: {text} ({code})"),
            );
        }
        self.check(now, ls, out);
    }
}
