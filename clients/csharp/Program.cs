// NOT RUN by any test of this project: read it as a sketch of the steps, which the other kits have tested.
//
// A receiver on ASP.NET Core and Npgsql, meant to behave as those of docs/receivers do.
//
// Enters: POST /events, one copy of an event. Leaves: 2xx after the key and the effect were committed together.
// The effect: an account's balance grows by the event's amount. GET /events/{key} says whether that has happened.
//
// Environment: DATABASE_URL, LISTEN (127.0.0.1:8082), WEBHOOK_SECRET (one or more, separated by spaces; none: no check).

using System.Text.Json;
using Npgsql;
using Oncebox.Receiver;

const int LargestBody = 8 << 20;
const string Accounts = "create table if not exists accounts (name text primary key, balance bigint not null)";
const string Credit = """
    insert into accounts (name, balance) values ($1, $2)
    on conflict (name) do update set balance = accounts.balance + excluded.balance
    """;

string Setting(string name, string otherwise) => Environment.GetEnvironmentVariable(name) ?? otherwise;

var text = Setting("WEBHOOK_SECRET", "");
if (text != "" && text.Trim() == "")
{
    throw new ArgumentException("WEBHOOK_SECRET is blank: a secret, or nothing at all for no check");
}
var secrets = text.Split((char[]?)null, StringSplitOptions.RemoveEmptyEntries).Select(Signature.SecretIn).ToList();
await using var source = NpgsqlDataSource.Create(ConnectionTo(new Uri(Setting("DATABASE_URL", "postgresql://localhost"))));
await using (var tables = source.CreateCommand(Once.Table + Accounts)) await tables.ExecuteNonQueryAsync();
var once = new Once(source);

var builder = WebApplication.CreateSlimBuilder();
builder.Logging.ClearProviders();
builder.WebHost.UseUrls("http://" + Setting("LISTEN", "127.0.0.1:8082"));
builder.WebHost.ConfigureKestrel(kestrel => kestrel.Limits.MaxRequestBodySize = LargestBody);
var app = builder.Build();
app.MapPost("/events", async (HttpRequest request) =>
{
    using var body = new MemoryStream();
    await request.Body.CopyToAsync(body);
    await Write(request.HttpContext.Response, await Receive(request.Headers, body.ToArray()));
});
app.MapGet("/events/{key}", async (string key, HttpResponse response) => await Write(response, await once.Lookup(key)));
app.Lifetime.ApplicationStarted.Register(() => Console.WriteLine("listening on " + new Uri(app.Urls.First()).Authority));
await app.RunAsync();

async Task<Answer> Receive(IHeaderDictionary headers, byte[] body)
{
    if (secrets.Count > 0 && Signature.Verify(secrets, headers, body, DateTimeOffset.UtcNow) != Verified.Good)
    {
        return new Answer(401, "the signature is not good\n");
    }
    Event one;
    try
    {
        one = Event.ReadSigned(headers, body);
    }
    catch (Refused refused)
    {
        return new Answer(refused.Status, refused.Reason == Reason.NoKey ? "no webhook-id\n" : refused.Message + "\n");
    }
    if (CreditIn(body) is not var (account, amount)) return new Answer(422, "no data with account and amount\n");
    return await once.Process(one, async transaction =>
    {
        await using var credit = new NpgsqlCommand(Credit, transaction.Connection, transaction);
        credit.Parameters.Add(new NpgsqlParameter { Value = account });
        credit.Parameters.Add(new NpgsqlParameter { Value = amount });
        await credit.ExecuteNonQueryAsync();
    });
}

// The account and the amount; null when the body is not such an event.
static (string Account, long Amount)? CreditIn(byte[] body)
{
    try
    {
        using var json = JsonDocument.Parse(body);
        var data = json.RootElement.GetProperty("data");
        var (account, amount) = (data.GetProperty("account").GetString(), data.GetProperty("amount").GetInt64());
        // JSON can hold what Postgres cannot: the character 0. Half a surrogate pair is refused above.
        return account == null || account.Contains('\0') || Math.Abs(amount) >= 1L << 53 ? null : (account, amount);
    }
    catch (Exception error) when (error is JsonException or InvalidOperationException or KeyNotFoundException
        or FormatException or OverflowException)
    {
        return null;
    }
}

static async Task Write(HttpResponse response, Answer answer)
{
    if (answer.Cause != null && answer.Status != 409) Console.Error.WriteLine($"{answer.Status}: {answer.Cause}");
    response.StatusCode = answer.Status;
    response.ContentLength = answer.Text.Length;
    if (answer.Status == 503) response.Headers.RetryAfter = "1";
    await response.WriteAsync(answer.Text);
}

// A URL as libpq has it, for Npgsql.
static string ConnectionTo(Uri url)
{
    var user = url.UserInfo.Split(':', 2).Select(Uri.UnescapeDataString).ToArray();
    var options = System.Web.HttpUtility.ParseQueryString(url.Query)["options"];
    return new NpgsqlConnectionStringBuilder
    {
        Host = url.Host,
        Port = url.IsDefaultPort || url.Port < 0 ? 5432 : url.Port,
        Username = user[0],
        Password = user.ElementAtOrDefault(1),
        Database = url.AbsolutePath.TrimStart('/'),
        Options = options,
        MaxPoolSize = 8,
        Timeout = 5,
    }.ConnectionString;
}
