// NOT RUN by any test of this project: read it as a sketch of the steps, which the other kits have tested.
//
// What the headers say of an event: its key, and which attempt this is. A request whose key can be read in two ways is
// refused, never guessed at.

using System.Globalization;
using System.Security.Cryptography;
using System.Text.RegularExpressions;
using Microsoft.Extensions.Primitives;

namespace Oncebox.Receiver;

public enum Reason { NoKey, BadKey, KeysDiffer, BadNumber, DigestDiffers }

public sealed class Refused(Reason reason) : Exception($"the request is refused: {reason}")
{
    public Reason Reason => reason;

    /// <summary>What to answer. Damaged bytes may come whole the next time; the others will not change.</summary>
    public int Status => reason == Reason.DigestDiffers ? 503 : 400;
}

/// <param name="Digest">Of the body as it came, in the form of content-digest.</param>
/// <param name="Source">topic/partition/offset</param>
public sealed record Event(string Key, string Digest, string? Id, long? Attempt, long? Fence, string? Source)
{
    private const int LongestKey = 255;
    // A structured-field string (RFC 8941, 3.3.3): printable ASCII in quotes, a backslash before quote and backslash.
    private static readonly Regex String = new(@"\A *""((?:[ !#-\[\]-~]|\\[""\\])*)"" *\z");

    /// <summary>The key from webhook-id, from Idempotency-Key, or from both when they say the same.</summary>
    public static Event Read(IHeaderDictionary headers, byte[] body)
    {
        var (plain, quoted) = (PlainKey(headers["webhook-id"]), QuotedKey(headers["Idempotency-Key"]));
        if (plain != null && quoted != null && plain != quoted) throw new Refused(Reason.KeysDiffer);
        return Of(plain ?? quoted, headers, body);
    }

    /// <summary>After Verify: the key from webhook-id alone, since the signature does not cover the other header.</summary>
    public static Event ReadSigned(IHeaderDictionary headers, byte[] body) =>
        Of(PlainKey(headers["webhook-id"]), headers, body);

    public static string DigestOf(byte[] body) => $"sha-256=:{Convert.ToBase64String(SHA256.HashData(body))}:";

    private static Event Of(string? key, IHeaderDictionary headers, byte[] body)
    {
        if (key == null) throw new Refused(Reason.NoKey);
        var attempt = Number(headers["oncebox-attempt"], int.MaxValue);
        var fence = Number(headers["oncebox-fence"], long.MaxValue);
        if (attempt == 0) throw new Refused(Reason.BadNumber);
        var digest = DigestOf(body);
        var given = string.Join(',', headers["content-digest"].ToArray()).Split(',').Select(part => part.Trim());
        var differs = given.Any(part => part.StartsWith("sha-256=", StringComparison.Ordinal) && part != digest);
        if (differs) throw new Refused(Reason.DigestDiffers);
        return new Event(key, digest, Text(headers["oncebox-event"]), attempt, fence, Text(headers["oncebox-source"]));
    }

    private static string? PlainKey(StringValues values)
    {
        if (values.Count == 0) return null;
        var key = values[0] ?? "";
        var isKey = values.Count == 1 && key.Length is > 0 and <= LongestKey && key.All(one => one is >= ' ' and <= '~');
        return isKey ? key : throw new Refused(Reason.BadKey);
    }

    private static string? QuotedKey(StringValues values)
    {
        if (values.Count == 0) return null;
        var found = String.Match(values[0] ?? "");
        if (values.Count > 1 || !found.Success) throw new Refused(Reason.BadKey);
        return PlainKey(Regex.Replace(found.Groups[1].Value, @"\\(.)", "$1"));
    }

    private static long? Number(StringValues values, long largest)
    {
        if (values.Count == 0) return null;
        var isNumber = long.TryParse(values[0], NumberStyles.None, CultureInfo.InvariantCulture, out var number);
        return values.Count == 1 && isNumber && number <= largest ? number : throw new Refused(Reason.BadNumber);
    }

    private static string? Text(StringValues values) => values.Count == 0 ? null : string.Join(", ", values.ToArray());
}
