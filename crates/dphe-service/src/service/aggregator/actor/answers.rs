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
        let Ok(Header { kind, round: Some(round), .. }) = Header::peek(message) else {
            return self.unexpected_answer("it is not a message");
        };
        let current = self.driver.party()?.round();
        if !matches!(kind, Kind::RoundTicket | Kind::FreezeAck | Kind::RoundResult) {
            return self.unexpected_answer("the key generator does not send messages of this kind");
        }
        if let Err(error) = self.driver.step(AggregatorEvent::Message(message.to_vec())).await? {
            self.log_refused("answer", &error);
            return Ok(());
        }
        // after the party has checked it, and before its record of it, so that a crash in between cannot lose it
        if round == current {
            self.driver.store.put_message(round, kind.number(), message).await?;
        }
        self.carry_out().await?;
        if kind == Kind::RoundTicket && self.driver.party()?.phase() == AggregatorPhase::Collecting {
            self.start_collecting().await?;
        }
        Ok(())
    }

    fn unexpected_answer(&mut self, reason: &str) -> Result<(), Error> {
        self.metrics.refused(ErrorCode::Version);
        tracing::warn!(reason, "an answer of the key generator is refused");
        Ok(())
    }

    /// Handles a refusal of the key generator.
    pub(super) async fn refused(&mut self, message: &Bytes, problem: &Problem) -> Result<(), Error> {
        let code = problem.code.as_str();
        tracing::error!(code, detail = problem.detail, "the key generator refused a message");
        self.metrics.refused(problem.code);
        let round = self.driver.party()?.round();
        if problem.code == ProblemCode::Protocol(ErrorCode::Rounds) {
            self.used_up = true;
            tracing::error!("the key generator opens no more sums, so the task is over");
        }
        if Header::peek(message)
            .is_ok_and(|header| header.kind == Kind::Freeze && header.round == Some(round))
            // the key generator has restarted and counts the time again; the party sends the freeze again
            && problem.code != ProblemCode::Protocol(ErrorCode::Early)
        {
            // the key generator will not open a sum of these participants
            self.recording.problem(format!("the key generator refused the participants: {}", problem.detail));
            if problem.code == ProblemCode::Protocol(ErrorCode::SetDifference) {
                self.spoilers.set_refused();
            }
            self.step("abort", AggregatorEvent::Abort).await?;
        }
        Ok(())
    }
}
