// An authorization server for tests: oidc-provider on the loopback address, with a person who agrees at once.
//
//   node authorization_server.mjs FOLDER [OPTIONS]
//
// FOLDER has oidc-provider in its node_modules. OPTIONS is JSON: `port` (0 means a free one), `clients` (known without
// registration; fields of RFC 7591), `keys` (private JWKs for signing) and `scopes` (of resources). The server prints
// its issuer on standard error. In addition to the endpoints of the provider, there are:
//
//   GET /counts     the numbers of requests by path and by grant, and of refresh tokens that were used again
//   GET /issued     every secret that the server has issued
//   POST /switch    merges its JSON into `switches` below; `forget` ("Client" or "Grant") deletes these records at once
//   POST /reset     resets all of this to its initial state, and deletes all records

import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [folder, text = '{}'] = process.argv.slice(2);
const options = { port: 0, clients: [], keys: null, scopes: 'tools pictures', ...JSON.parse(text) };
const library = (path) => import(pathToFileURL(resolve(folder, 'node_modules/oidc-provider/lib', path)));
const { default: Provider } = await library('index.js');
const { default: MemoryAdapter } = await library('adapters/memory_adapter.js');

const counts = {};
const switches = {};
const issued = new Set();
const store = new Map(); // each record contains its own expiry time

const reset = () => {
  Object.assign(counts, { requests: {}, grants: {}, refused: {}, registrations: 0, reuses: 0 });
  Object.assign(switches, {
    seconds: 600, // the lifetime of an access token
    delays: {}, // milliseconds by path before a request is handled
    late: {}, // milliseconds by path before the answer is sent
    html: [], // paths that are answered with a web page
    withoutPkce: false, // the metadata does not announce S256
    issuer: null, // the `iss` in redirects, if it is wrong
    denies: false, // whether the person refuses
    format: 'jwt', // the format of access tokens: 'jwt' or 'opaque'
  });
  issued.clear();
  store.clear();
};
reset();

const count = (group, name) => { counts[group][name] = (counts[group][name] ?? 0) + 1; };

const forget = (kind) => {
  for (const key of store.keys()) if (key.startsWith(`${kind}:`)) store.delete(key);
};

const server = createServer();
await new Promise((resolveListening) => server.listen(options.port, '127.0.0.1', resolveListening));
const issuer = `http://127.0.0.1:${server.address().port}`;

const key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'jwk' });
const provider = new Provider(issuer, {
  adapter: (model) => new MemoryAdapter(model, store),
  clients: options.clients,
  clientDefaults: { id_token_signed_response_alg: 'ES256' },
  jwks: { keys: options.keys ?? [{ ...key, alg: 'ES256', use: 'sig', kid: 'only' }] },
  cookies: { keys: ['of tests'] },
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: (_ctx, client) => client.grantTypeAllowed('refresh_token'),
  expiresWithSession: () => false,
  clientAuthMethods: ['none', 'client_secret_basic', 'client_secret_post', 'private_key_jwt'],
  scopes: ['offline_access', 'tools', 'pictures'],
  ttl: { RefreshToken: 86400, Grant: 86400, Interaction: 600, Session: 600 },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    clientCredentials: { enabled: true },
    introspection: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_ctx, resource) => ({
        scope: options.scopes,
        audience: resource,
        accessTokenFormat: switches.format,
        accessTokenTTL: switches.seconds,
        jwt: { sign: { alg: 'ES256' } },
      }),
    },
  },
  findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  async loadExistingGrant(ctx) {
    const { client, session, params, resourceServers } = ctx.oidc;
    const grant = new ctx.oidc.provider.Grant({ clientId: client.clientId, accountId: session.accountId });
    grant.addOIDCScope(params.scope ?? 'offline_access');
    for (const resource of Object.keys(resourceServers ?? {})) grant.addResourceScope(resource, params.scope ?? '');
    await grant.save();
    return grant;
  },
  renderError(ctx, out) {
    ctx.type = 'json';
    ctx.body = out;
  },
});

provider.on('grant.error', (ctx, error) => {
  count('refused', ctx.oidc.params?.grant_type);
  if (error.error_detail === 'refresh token already used') counts.reuses += 1;
});
provider.on('grant.success', (ctx) => count('grants', ctx.oidc.params.grant_type));
provider.on('registration_create.success', () => { counts.registrations += 1; });

async function body(request) {
  let text = '';
  for await (const piece of request) text += piece;
  return JSON.parse(text);
}

// The endpoints for tests.
provider.use(async (ctx, next) => {
  if (ctx.path === '/counts') ctx.body = counts;
  else if (ctx.path === '/issued') ctx.body = [...issued];
  else if (ctx.path === '/reset') {
    reset();
    ctx.body = switches;
  } else if (ctx.path === '/switch') {
    const { forget: kind, ...changes } = await body(ctx.req);
    if (kind) forget(kind);
    ctx.body = Object.assign(switches, changes);
  } else await next();
});

// Reads the switch again and again, so that a waiting request continues when a test resets the switch.
async function pause(group, path) {
  for (const start = Date.now(); Date.now() < start + (switches[group][path] ?? 0);) {
    await new Promise((wake) => { setTimeout(wake, 10); });
  }
}

// Around every other request: the faults that a test has switched on, and the record of issued secrets.
provider.use(async (ctx, next) => {
  const path = ctx.path.replace(/^\/(interaction|auth)\/.*/, '/$1/ID');
  count('requests', path);
  await pause('delays', path);
  if (switches.html.includes(path)) {
    ctx.type = 'html';
    ctx.body = '<!doctype html><title>Sign in</title><p>This network wants you to sign in.</p>';
    return;
  }
  await next();
  await pause('late', path);
  for (const name of ['access_token', 'refresh_token', 'client_secret', 'registration_access_token']) {
    if (typeof ctx.body?.[name] === 'string') issued.add(ctx.body[name]);
  }
  if (ctx.path.startsWith('/.well-known/') && switches.withoutPkce) delete ctx.body.code_challenge_methods_supported;
  const location = ctx.response.get('Location');
  if (location && !location.startsWith('/') && !location.startsWith(issuer)) {
    const redirect = new URL(location);
    if (redirect.searchParams.has('code')) issued.add(redirect.searchParams.get('code'));
    if (switches.issuer) redirect.searchParams.set('iss', switches.issuer);
    ctx.set('Location', redirect.href);
  }
});

// The person's answer to each interaction.
provider.use(async (ctx, next) => {
  if (!ctx.path.startsWith('/interaction/')) return next();
  const answer = switches.denies ? { error: 'access_denied' } : { login: { accountId: 'person' }, consent: {} };
  const location = await provider.interactionResult(ctx.req, ctx.res, answer, { mergeWithLastSubmission: false });
  return ctx.redirect(location);
});

server.on('request', provider.callback());
process.stderr.write(`issuer ${issuer}\n`);
