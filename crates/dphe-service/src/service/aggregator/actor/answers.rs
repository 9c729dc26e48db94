//! Answers and refusals of the key generator.

use bytes::Bytes;
use dphe::ErrorCode;
use dphe::party::{AggregatorEvent, AggregatorPhase, Party as _};
use dphe::wire::{Header, Kind};

use super::AggregatorActor;
use crate::Error;
use crate::http::problem::{Problem, ProblemCode};
use crate::store::Archive as _;

impl AggregatorActor {
    /// Handles an answer of the key generator.
    pub(super) async fn answered(&mut self, message: &Bytes) -> Result<(), Error> {
        let header = Header::peek(message).ok();
        // stored before the step, so that a crash in between cannot lose it; `dphe verify` checks it again
        if let Some(Header { kind, round: Some(round), .. }) = header
            && round == self.driver.party()?.round()
        {
            self.driver.store.put_message(round, kind.number(), message).await?;
        }
        let refused = self.step("answer", AggregatorEvent::Message(message.to_vec())).await?;
        if refused.is_none()
            && header.is_some_and(|header| header.kind == Kind::RoundTicket)
            && self.driver.party()?.phase() == AggregatorPhase::Collecting
        {
            self.start_collecting().await?;
        }
        Ok(())
    }

    /// Handles a refusal of the key generator.
    pub(super) async fn refused(&mut self, message: &Bytes, problem: &Problem) -> Result<(), Error> {
        let code = problem.code.as_str();
        tracing::error!(code, detail = problem.detail, "the key generator refused a message");
        self.metrics.refused(problem.code);
        let round = self.driver.party()?.round();
        if Header::peek(message)
            .is_ok_and(|header| header.kind == Kind::Freeze && header.round == Some(round))
            // the key generator has restarted and counts the time again; the party sends the freeze again
            && problem.code != ProblemCode::Protocol(ErrorCode::Early)
        {
            // the key generator will not open a sum of these participants
            let detail: String = problem.detail.chars().take(200).collect();
            self.recording.problem(format!("the key generator refused the participants: {detail}"));
            self.step("abort", AggregatorEvent::Abort).await?;
        }
        Ok(())
    }
}
