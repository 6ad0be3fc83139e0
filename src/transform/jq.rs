//! jq programs (by jaq): compiled once per thread, run on decoded values, with their outputs bounded.
//!
//! What can differ between two runs on one record, or reaches outside it, is not there to be called: a record that is
//! read again must give the same bytes. A running program cannot be interrupted; the worker's watchdog sees to that.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jaq_core::load::{Arena, File, Loader};
use jaq_core::{Ctx, Vars, data, unwrap_valr};
use jaq_json::{Val, read, write};

use super::decode::{Decoded, Output, deeper_than};
use super::jq_check::{REFUSED, bounded, shortened, syntax_message, undefined_message};
use super::native::Native;
use super::{Origin, Rejection};
use crate::config::Encoding;
use crate::event::Record;

type Kind = data::JustLut<Val>;

pub struct Program {
    filter: jaq_core::compile::Filter<jaq_core::Native<Kind>>,
    /// The same program, where it needs no interpreter.
    native: Option<Native>,
    uses_record: bool,
}

/// How much one record may become. `text` turns string outputs into text bodies.
#[derive(Clone, Copy)]
pub struct Limits {
    pub outputs: usize,
    pub bytes: usize,
    pub text: bool,
}

impl Program {
    pub fn compile(text: &str) -> Result<Self, String> {
        bounded(text)?;
        Ok(Self { native: Native::compile(text), ..Self::interpreted(text)? })
    }

    /// The same by jaq alone: what the other must equal.
    pub fn interpreted(text: &str) -> Result<Self, String> {
        let allowed = |name: &str| !REFUSED.contains(&name);
        let definitions = jaq_core::defs()
            .chain(jaq_std::defs())
            .chain(jaq_json::defs())
            .filter(|definition| allowed(definition.name));
        let natives = jaq_core::funs::<Kind>()
            .chain(jaq_std::funs::<Kind>())
            .chain(jaq_json::funs::<Kind>())
            .filter(|(name, _, _)| allowed(name));
        let arena = Arena::default();
        let modules = Loader::new(definitions)
            .load(&arena, File { code: text, path: () })
            .map_err(|errors| syntax_message(text, &errors))?;
        let filter = jaq_core::Compiler::default()
            .with_funs(natives)
            .with_global_vars(["$record"])
            .compile(modules)
            .map_err(|errors| undefined_message(&errors))?;
        Ok(Self { filter, native: None, uses_record: text.contains("$record") })
    }

    pub fn uses_record(&self) -> bool {
        self.uses_record
    }

    /// False, null and no output at all are not true; the first output decides.
    pub fn is_true(&self, input: &Decoded<'_>, record: Option<&Val>, name: &'static str) -> Result<bool, Rejection> {
        if let Some(output) = self.natively(input) {
            return Ok(output.is_some_and(|text| text != "null" && text != "false"));
        }
        let first = self.first(input, record, name)?;
        Ok(!matches!(first, None | Some(Val::Null | Val::Bool(false))))
    }

    /// The first output, which must be text.
    pub fn text(&self, input: &Decoded<'_>, record: Option<&Val>, name: &'static str) -> Result<String, Rejection> {
        // Found natively, it has no escapes.
        if let Some(Some(text)) = self.natively(input)
            && let Some(inner) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))
        {
            return Ok(inner.to_owned());
        }
        match self.first(input, record, name)? {
            Some(Val::TStr(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Some(_) => Err(Rejection::EventTypeNotText { what: "another value" }),
            None => Err(Rejection::EventTypeNotText { what: "nothing" }),
        }
    }

    /// The first output, as JSON.
    pub fn json(
        &self,
        input: &Decoded<'_>,
        record: Option<&Val>,
        name: &'static str,
    ) -> Result<Option<String>, Rejection> {
        if let Some(output) = self.natively(input) {
            return Ok(output);
        }
        self.first(input, record, name)?.map(|value| written(&value)).transpose()
    }

    /// The one output that there is, or none; nothing where only jaq can tell.
    fn natively(&self, input: &Decoded<'_>) -> Option<Option<String>> {
        let (Some(native), Decoded::Json(text)) = (&self.native, input) else { return None };
        native.run(text).ok()
    }

    fn first(&self, input: &Decoded<'_>, record: Option<&Val>, name: &'static str) -> Result<Option<Val>, Rejection> {
        let mut first = None;
        self.each(input, record, name, |value| {
            first = Some(value);
            Ok(false)
        })?;
        Ok(first)
    }

    pub fn run(
        &self,
        input: &Decoded<'_>,
        record: Option<&Val>,
        name: &'static str,
        limits: Limits,
    ) -> Result<Vec<Output>, Rejection> {
        if let Some(output) = self.natively(input).filter(|_| !limits.text) {
            return match output {
                Some(text) if text.len() > limits.bytes => Err(Rejection::OutputTooLarge { most: limits.bytes }),
                output => Ok(output.map(Output::Json).into_iter().collect()),
            };
        }
        let mut outputs = Vec::new();
        let mut bytes = 0;
        self.each(input, record, name, |value| {
            if outputs.len() == limits.outputs {
                return Err(Rejection::TooManyOutputs { most: limits.outputs });
            }
            let output = match value {
                Val::TStr(text) if limits.text => Output::Text(String::from_utf8_lossy(&text).into_owned()),
                value => Output::Json(written(&value)?),
            };
            bytes += match &output {
                Output::Json(text) | Output::Text(text) => text.len(),
                Output::Bytes(bytes) => bytes.len(),
            };
            if bytes > limits.bytes {
                return Err(Rejection::OutputTooLarge { most: limits.bytes });
            }
            outputs.push(output);
            Ok(true)
        })?;
        Ok(outputs)
    }

    /// Hands each output to `take` until it answers false.
    fn each(
        &self,
        input: &Decoded<'_>,
        record: Option<&Val>,
        name: &'static str,
        mut take: impl FnMut(Val) -> Result<bool, Rejection>,
    ) -> Result<(), Rejection> {
        let failed = |message: String| Rejection::Program { program: name, message: shortened(&message) };
        let value = value(input).map_err(failed)?;
        let record = record.cloned().unwrap_or_default();
        let context = Ctx::<Kind>::new(&self.filter.lut, Vars::new([record]));
        for output in self.filter.id.run((context, value)).map(unwrap_valr) {
            let output = output.map_err(|error| failed(error.to_string()))?;
            if !take(output)? {
                break;
            }
        }
        Ok(())
    }
}

/// What jaq sees of a decoded value; bytes are base64 there, as they are in a body.
fn value(input: &Decoded<'_>) -> Result<Val, String> {
    match input {
        Decoded::Json(text) => read::parse_single(text.as_bytes()).map_err(|error| error.to_string()),
        Decoded::Text(text) => Ok(Val::utf8_str((*text).to_owned())),
        Decoded::Bytes(bytes) => Ok(Val::utf8_str(STANDARD.encode(bytes))),
    }
}

/// jaq can hold values that JSON cannot (NaN, byte strings, other keys than text): those are refused, never altered.
fn written(value: &Val) -> Result<String, Rejection> {
    let mut out = Vec::new();
    write::write(&mut out, &write::Pp::default(), 0, value).map_err(|_| Rejection::OutputNotJson)?;
    if deeper_than(&out, super::decode::DEEPEST) || serde_json::from_slice::<serde::de::IgnoredAny>(&out).is_err() {
        return Err(Rejection::OutputNotJson);
    }
    String::from_utf8(out).map_err(|_| Rejection::OutputNotJson)
}

/// The JSON of the value that a JSON pointer names. Null is missing.
pub fn pointed(value: &Decoded<'_>, pointer: &str) -> Option<String> {
    let Decoded::Json(text) = value else { return None };
    let mut here = read::parse_single(text.as_bytes()).ok()?;
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        here = match &here {
            Val::Obj(map) => map.get(&Val::utf8_str(part))?.clone(),
            Val::Arr(items) => items.get(part.parse::<usize>().ok()?)?.clone(),
            _ => return None,
        };
    }
    match here {
        Val::Null => None,
        found => written(&found).ok(),
    }
}

/// `$record`: where the record stands, its key and headers. Bytes that are no UTF-8 appear as base64.
pub fn record_value(record: &Record, origin: &Origin, encoding: Encoding) -> Val {
    let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => Val::utf8_str(text.to_owned()),
        Err(_) => Val::utf8_str(STANDARD.encode(bytes)),
    };
    let key = match &record.key {
        None => Val::Null,
        Some(bytes) => {
            let shallow = encoding == Encoding::Json && !deeper_than(bytes, super::decode::DEEPEST);
            let valid = shallow && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok();
            valid.then(|| read::parse_single(bytes).ok()).flatten().unwrap_or_else(|| text(bytes))
        }
    };
    let headers = record.headers.iter().map(|(name, value)| (text(name), value.as_deref().map_or(Val::Null, text)));
    let number = |n: i64| Val::Num(jaq_json::Num::from_integral(n));
    let entries = [
        ("topic", Val::utf8_str(origin.topic.to_string())),
        ("partition", number(origin.partition.into())),
        ("offset", number(record.offset)),
        ("timestamp", record.timestamp.map_or(Val::Null, number)),
        ("key", key),
        ("headers", Val::obj(headers.collect())),
    ];
    Val::obj(entries.into_iter().map(|(name, value)| (Val::utf8_str(name.to_owned()), value)).collect())
}
