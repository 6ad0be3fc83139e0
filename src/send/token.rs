//! OAuth 2 client credentials: tokens, kept until shortly before they expire or the endpoint answers 401.
//!
//! One request for a token is under way at a time, however many deliveries want it; they share its answer, and its
//! failure. A delivery without a token is never sent, so nothing about it is in doubt. No error holds a secret.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::header::HeaderValue;
use tracing::warn;

use super::connect::{ConnectError, Route};
use super::credentials::Live;
use super::outcome::Trouble;
use super::token_request::{self, Grant, Style};
use crate::observe::chain;

/// A failure is answer enough for this long, and a token this young is not replaced because of a 401.
const PAUSE: Duration = Duration::from_secs(1);
/// A token is renewed this long before it expires, or in the last tenth of its life.
const LONGEST_MARGIN: Duration = Duration::from_secs(60);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("no connection to the token endpoint")]
    Connect(#[source] ConnectError),
    #[error("the token endpoint did not answer within the timeout")]
    Timeout,
    #[error("the exchange with the token endpoint broke off")]
    Broken(#[source] hyper::Error),
    #[error("the token endpoint answered {status}{}", code.map(|code| format!(" ({code})")).unwrap_or_default())]
    Refused { status: u16, code: Option<&'static str> },
    #[error("the token endpoint's answer cannot be read, or is longer than 64 KiB")]
    Unreadable,
    #[error("the token endpoint's answer has no bearer token")]
    NoToken,
}

impl TokenError {
    pub fn trouble(&self) -> Trouble {
        match self {
            Self::Connect(error) => error.trouble(),
            Self::Timeout => Trouble::Timeout,
            Self::Broken(_) | Self::Refused { .. } | Self::Unreadable | Self::NoToken => Trouble::Token,
        }
    }
}

/// A token, told from those before and after it.
#[derive(Clone)]
pub struct Token {
    header: HeaderValue,
    number: u64,
}

impl Token {
    pub fn header(&self) -> HeaderValue {
        self.header.clone()
    }
}

pub struct Tokens {
    workflow: Arc<str>,
    endpoint: token_request::Endpoint,
    /// For a renewal that no delivery waits for.
    timeout: Duration,
    cache: Mutex<Cache>,
    /// Held by the one that asks for a token.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct Cache {
    held: Option<Held>,
    numbered: u64,
    failure: Option<(Instant, Arc<TokenError>)>,
    style: Style,
}

struct Held {
    token: Token,
    since: Instant,
    renew_at: Instant,
    unusable_at: Instant,
    /// The endpoint turned it down.
    refused: bool,
}

/// What the cache has to offer.
enum Offer {
    Good(Token),
    /// Good, and to be renewed.
    Ageing(Token),
    Nothing,
}

impl Tokens {
    pub fn new(workflow: &Arc<str>, route: Route, url: &url::Url, timeout: Duration) -> Self {
        Self {
            workflow: Arc::clone(workflow),
            endpoint: token_request::Endpoint::new(route, url),
            timeout,
            cache: Mutex::default(),
            turn: Arc::default(),
        }
    }

    /// The token to send now.
    pub async fn get(
        self: &Arc<Self>,
        live: &Arc<Live>,
        deadline: tokio::time::Instant,
    ) -> Result<Token, Arc<TokenError>> {
        match self.offer() {
            Offer::Good(token) => return Ok(token),
            Offer::Ageing(token) => {
                self.renew_beside(live);
                return Ok(token);
            }
            Offer::Nothing => {}
        }
        let _turn = self.turn.lock().await;
        // Whoever had the turn before may have brought one, or found out that there is none to be had.
        if let Offer::Good(token) | Offer::Ageing(token) = self.offer() {
            return Ok(token);
        }
        match self.recent_failure() {
            Some(failure) => Err(failure),
            None => self.ask(live, deadline).await,
        }
    }

    /// The endpoint answered 401 to this token. Requests that were under way with it say so too; the first decides.
    pub fn refused(&self, token: &Token) {
        let mut cache = self.cache.lock().expect("no holder of this lock panics");
        if let Some(held) = &mut cache.held
            && held.token.number == token.number
            && held.since.elapsed() >= PAUSE
        {
            held.refused = true;
        }
    }

    /// Renews a token that is still good, while deliveries go on with it.
    fn renew_beside(self: &Arc<Self>, live: &Arc<Live>) {
        if self.recent_failure().is_some() {
            return;
        }
        let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() else { return };
        let (tokens, live) = (Arc::clone(self), Arc::clone(live));
        tokio::spawn(async move {
            if let Offer::Ageing(_) = tokens.offer()
                && let Err(error) = tokens.ask(&live, tokio::time::Instant::now() + tokens.timeout).await
            {
                warn!(workflow = %tokens.workflow, error = %chain(&error), "the token could not be renewed yet");
            }
            drop(turn);
        });
    }

    /// Asks for a token. The caller has the turn.
    async fn ask(&self, live: &Live, deadline: tokio::time::Instant) -> Result<Token, Arc<TokenError>> {
        let oauth2 = live.oauth2.as_ref().expect("tokens are asked for where there are client credentials");
        let style = self.cache.lock().expect("no holder of this lock panics").style;
        let asked_at = Instant::now();
        let asked = self.endpoint.ask(oauth2, &live.means, style);
        let answer = match tokio::time::timeout_at(deadline, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(TokenError::Timeout),
        };
        let mut cache = self.cache.lock().expect("no holder of this lock panics");
        match answer {
            Ok((grant, style)) => Ok(cache.hold(grant, style, asked_at)),
            Err(error) => {
                let error = Arc::new(error);
                cache.failure = Some((Instant::now(), Arc::clone(&error)));
                Err(error)
            }
        }
    }

    fn offer(&self) -> Offer {
        let cache = self.cache.lock().expect("no holder of this lock panics");
        let now = Instant::now();
        match &cache.held {
            Some(held) if held.refused || now >= held.unusable_at => Offer::Nothing,
            Some(held) if now >= held.renew_at => Offer::Ageing(held.token.clone()),
            Some(held) => Offer::Good(held.token.clone()),
            None => Offer::Nothing,
        }
    }

    fn recent_failure(&self) -> Option<Arc<TokenError>> {
        let cache = self.cache.lock().expect("no holder of this lock panics");
        cache.failure.as_ref().filter(|(at, _)| at.elapsed() < PAUSE).map(|(_, failure)| Arc::clone(failure))
    }
}

impl Cache {
    /// The life of a token counts from before it was asked for.
    fn hold(&mut self, grant: Grant, style: Style, asked_at: Instant) -> Token {
        self.numbered += 1;
        let token = Token { header: grant.header, number: self.numbered };
        let margin = (grant.lifetime / 10).min(LONGEST_MARGIN);
        self.held = Some(Held {
            token: token.clone(),
            since: Instant::now(),
            renew_at: asked_at + grant.lifetime - margin,
            unusable_at: asked_at + grant.lifetime - margin / 2,
            refused: false,
        });
        self.failure = None;
        self.style = style;
        token
    }
}
