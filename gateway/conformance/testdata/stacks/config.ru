# Orders and their like as Sinatra reads them: each answer says what it worked on.
require 'sinatra/base'
require 'json'

class App < Sinatra::Base
  set :environment, :production
  set :show_exceptions, false
  set :raise_errors, false
  enable :method_override # as in every classic app
  disable :protection

  def tell(kind, value)
    resource = value.nil? || value == '' ? '' : "#{kind}:#{value}"
    headers 'X-App' => '1', 'X-Key' => env['HTTP_KEYWAY_KEY'].to_s, 'X-Resource' => resource.b.gsub(/[^A-Za-z0-9._~-]/n) { |c| format('%%%02X', c.ord) }
    ''
  end

  %i[get post put patch delete].each do |verb|
    send(verb, '/orders/:order') { tell('order', params['order']) }
    send(verb, '/orders/:order/*') { tell('order', params['order']) }
    send(verb, %r{/nums/(\d+)}) { |n| tell('num', Integer(n, 10)) }
    send(verb, '/room') { tell('room', request.GET['room']) }
    send(verb, '/cart') { tell('cart', request.cookies['cart']) }
    send(verb, '/owner') { tell('owner', env['HTTP_X_OWNER']) }
    send(verb, '/account') do
      body = begin JSON.parse(request.body.read) rescue nil end
      inner = body['account'] if body.is_a?(Hash)
      tell('account', inner.is_a?(Hash) ? inner['id'] : nil)
    end
  end
  post('/pay/:p') { tell('pay', params['p']) }
  error { tell('none', nil) }
  not_found { tell('none', nil) }
end

run App
