//! Statements as they are sent: the text of a file under sql/, with its schema put in.
//!
//! Every statement goes out unnamed with its parameter types, in one round trip, so that all of it works behind a pooler
//! in transaction mode. The files say `oncebox.`; another schema is put in once, at start.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio_postgres::types::{ToSql, Type};

/// The schema that every table lives in.
#[derive(Debug, Clone)]
pub struct Schema {
    name: Arc<str>,
    /// File text to its text in this schema; a handful of entries, filled on first use.
    texts: Arc<Mutex<HashMap<usize, Arc<str>>>>,
}

impl Schema {
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), texts: Arc::default() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// A file's text in this schema. The address of an included file stands for it: it never moves.
    pub fn text(&self, file: &'static str) -> Arc<str> {
        let mut texts = self.texts.lock().expect("no holder of this lock panics");
        Arc::clone(texts.entry(file.as_ptr() as usize).or_insert_with(|| self.in_schema(file).into()))
    }

    fn in_schema(&self, file: &str) -> String {
        #[cfg(feature = "mutants")]
        let file = &crate::observe::mutant::in_sql(file);
        file.replace("oncebox.", &format!("{}.", self.name))
            .replace("schema if not exists oncebox", &format!("schema if not exists {}", self.name))
    }
}

/// A parameter with its Postgres type.
pub type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// `int8(&value)` and the like read as the statement's header does.
macro_rules! parameters {
    ($($name:ident = $kind:ident),+ $(,)?) => {
        $(pub fn $name<'a>(value: &'a (dyn ToSql + Sync)) -> Parameter<'a> { (value, Type::$kind) })+
    };
}

parameters! {
    boolean = BOOL,
    booleans = BOOL_ARRAY,
    bytes_list = BYTEA_ARRAY,
    date = DATE,
    dates = DATE_ARRAY,
    float8 = FLOAT8,
    float8s = FLOAT8_ARRAY,
    int4 = INT4,
    int4s = INT4_ARRAY,
    int8 = INT8,
    int8s = INT8_ARRAY,
    json = JSON,
    text = TEXT,
    texts = TEXT_ARRAY,
    bytes = BYTEA,
    timestamptz = TIMESTAMPTZ,
    uuid = UUID,
}
