// Orders and their like as Express reads them: each answer says what it worked on.
const express = require('express')
const cookie = require('cookie')
const app = express()
app.use(express.json())

const tell = what => (req, res) => {
  let resource = what(req)
  if (resource === undefined || resource === null) resource = ''
  res.set('X-App', '1')
  res.set('X-Key', req.headers['keyway-key'] || '')
  res.set('X-Resource', encodeURIComponent(Buffer.from(String(resource)).toString()))
  res.send('')
}
const named = (kind, value) => value === undefined || value === null || value === '' ? '' : kind + ':' + value

app.all(['/orders/:order', '/orders/:order/(.*)'], tell(req => named('order', req.params.order)))
app.all('/nums/:n(\\d+)', tell(req => named('num', Number(req.params.n))))
app.all('/room', tell(req => named('room', req.query.room)))
app.all('/cart', tell(req => named('cart', cookie.parse(req.headers.cookie || '').cart)))
app.all('/owner', tell(req => named('owner', req.get('x-owner'))))
app.all('/account', tell(req => named('account', req.body && req.body.account && req.body.account.id)))
app.post('/pay/:p', tell(req => named('pay', req.params.p)))
app.use(tell(() => ''))
app.use((err, req, res, next) => res.status(400).set('X-App', '1').send(''))
const [host, port] = process.argv[2].split(':')
app.listen(port, host)
