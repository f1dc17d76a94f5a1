"""Django Oscar, a shop, on PostgreSQL: a Django application with database sessions, and a connection for each request."""

import re
import sys

import psycopg2

from app import HOST, PASSWORD, App

PRODUCTS = 60
SETTINGS = f"""
import os
from pathlib import Path
from oscar.defaults import *
BASE_DIR = Path(__file__).resolve().parent
SECRET_KEY = 'apps'
ALLOWED_HOSTS = ['{HOST}']
DATABASES = {{'default': {{'ENGINE': 'django.db.backends.postgresql', 'NAME': 'app', 'USER': 'app', 'HOST': '127.0.0.1',
    'PORT': os.environ['APP_DB_PORT'], 'ATOMIC_REQUESTS': False, 'OPTIONS': {{'sslmode': 'disable'}}}}}}
INSTALLED_APPS = ['django.contrib.admin', 'django.contrib.auth', 'django.contrib.contenttypes', 'django.contrib.sessions',
    'django.contrib.messages', 'django.contrib.staticfiles', 'django.contrib.sites', 'django.contrib.flatpages',
    'oscar.config.Shop', 'oscar.apps.analytics.apps.AnalyticsConfig', 'oscar.apps.checkout.apps.CheckoutConfig',
    'oscar.apps.address.apps.AddressConfig', 'oscar.apps.shipping.apps.ShippingConfig',
    'oscar.apps.catalogue.apps.CatalogueConfig', 'oscar.apps.catalogue.reviews.apps.CatalogueReviewsConfig',
    'oscar.apps.communication.apps.CommunicationConfig', 'oscar.apps.partner.apps.PartnerConfig',
    'oscar.apps.basket.apps.BasketConfig', 'oscar.apps.payment.apps.PaymentConfig', 'oscar.apps.offer.apps.OfferConfig',
    'oscar.apps.order.apps.OrderConfig', 'oscar.apps.customer.apps.CustomerConfig', 'oscar.apps.search.apps.SearchConfig',
    'oscar.apps.voucher.apps.VoucherConfig', 'oscar.apps.wishlists.apps.WishlistsConfig',
    'oscar.apps.dashboard.apps.DashboardConfig', 'oscar.apps.dashboard.reports.apps.ReportsDashboardConfig',
    'oscar.apps.dashboard.users.apps.UsersDashboardConfig', 'oscar.apps.dashboard.orders.apps.OrdersDashboardConfig',
    'oscar.apps.dashboard.catalogue.apps.CatalogueDashboardConfig', 'oscar.apps.dashboard.offers.apps.OffersDashboardConfig',
    'oscar.apps.dashboard.partners.apps.PartnersDashboardConfig', 'oscar.apps.dashboard.pages.apps.PagesDashboardConfig',
    'oscar.apps.dashboard.ranges.apps.RangesDashboardConfig', 'oscar.apps.dashboard.reviews.apps.ReviewsDashboardConfig',
    'oscar.apps.dashboard.vouchers.apps.VouchersDashboardConfig',
    'oscar.apps.dashboard.communications.apps.CommunicationsDashboardConfig',
    'oscar.apps.dashboard.shipping.apps.ShippingDashboardConfig',
    'widget_tweaks', 'haystack', 'treebeard', 'sorl.thumbnail', 'django_tables2']
SITE_ID = 1
MIDDLEWARE = ['django.middleware.security.SecurityMiddleware', 'django.contrib.sessions.middleware.SessionMiddleware',
    'django.middleware.common.CommonMiddleware', 'django.middleware.csrf.CsrfViewMiddleware',
    'django.contrib.auth.middleware.AuthenticationMiddleware', 'django.contrib.messages.middleware.MessageMiddleware',
    'oscar.apps.basket.middleware.BasketMiddleware', 'django.contrib.flatpages.middleware.FlatpageFallbackMiddleware']
AUTHENTICATION_BACKENDS = ('oscar.apps.customer.auth_backends.EmailBackend', 'django.contrib.auth.backends.ModelBackend')
TEMPLATES = [{{'BACKEND': 'django.template.backends.django.DjangoTemplates', 'APP_DIRS': True, 'OPTIONS': {{'context_processors': [
    'django.template.context_processors.debug', 'django.template.context_processors.request',
    'django.contrib.auth.context_processors.auth', 'django.contrib.messages.context_processors.messages',
    'oscar.apps.search.context_processors.search_form', 'oscar.apps.checkout.context_processors.checkout',
    'oscar.apps.communication.notifications.context_processors.notifications', 'oscar.core.context_processors.metadata']}}}}]
HAYSTACK_CONNECTIONS = {{'default': {{'ENGINE': 'haystack.backends.simple_backend.SimpleEngine'}}}}
CACHES = {{'default': {{'BACKEND': 'django.core.cache.backends.dummy.DummyCache'}}}}
ROOT_URLCONF = 'urls'
STATIC_URL, MEDIA_URL, MEDIA_ROOT = '/static/', '/media/', BASE_DIR / 'media'
USE_TZ, TIME_ZONE, LANGUAGE_CODE = True, 'UTC', 'en'
DEFAULT_AUTO_FIELD = 'django.db.models.BigAutoField'
OSCAR_INITIAL_ORDER_STATUS, OSCAR_INITIAL_LINE_STATUS = 'Pending', 'Pending'
"""
URLS = """
from django.apps import apps
from django.contrib import admin
from django.urls import include, path
urlpatterns = [path('i18n/', include('django.conf.urls.i18n')), path('admin/', admin.site.urls),
    path('', include(apps.get_app_config('oscar').urls[0]))]
"""
SEED = r"""
import os
from decimal import Decimal
from django.contrib.auth import get_user_model
from django.contrib.sites.models import Site
from oscar.core.loading import get_model
Category, Product, ProductClass, ProductCategory = (get_model('catalogue', name) for name in
    ('Category', 'Product', 'ProductClass', 'ProductCategory'))
Partner, StockRecord = get_model('partner', 'Partner'), get_model('partner', 'StockRecord')
Review, Country = get_model('reviews', 'ProductReview'), get_model('address', 'Country')
Site.objects.update(domain='app.test', name='shop')
user = get_user_model().objects.create_superuser('admin', 'admin@app.test', os.environ['SEED_PASSWORD'])
Country.objects.create(iso_3166_1_a2='GB', name='United Kingdom', printable_name='United Kingdom', is_shipping_country=True)
kind = ProductClass.objects.create(name='Map', requires_shipping=True, track_stock=True)
partner = Partner.objects.create(name='Lakes')
roots = [Category.add_root(name=f'Region {n}') for n in range(4)]
leaves = [Category.objects.get(pk=root.pk).add_child(name=f'Valley {root.pk} {n}') for root in roots for n in range(2)]
for n in range(int(os.environ['SEED_PRODUCTS'])):
    product = Product.objects.create(title=f'Map of lake {n}', upc=f'map-{n}', product_class=kind, description='Water. ' * 30)
    ProductCategory.objects.create(product=product, category=leaves[n % len(leaves)])
    StockRecord.objects.create(product=product, partner=partner, partner_sku=f'sku{n}', price=Decimal(n + 1), num_in_stock=100)
    for m in range(n % 3):
        Review.objects.create(product=product, user=None, score=3 + m % 3, title=f'Review {m}', body='Good', name='Reader',
            email=f'r{m}@app.test', status=Review.APPROVED)
"""


class Oscar(App):
    name = "Django Oscar"
    family = "pg"
    login_statements = ("SELECT set_config('TimeZone', 'UTC', false)",)
    first_read = 'SELECT "partner_partner"."id", "partner_partner"."code" FROM "partner_partner" WHERE "partner_partner"."id" = 1'
    pages = (
        ("anonymous", "/"), ("anonymous", "/catalogue/"), ("anonymous", "/catalogue/?page=2"), ("anonymous", "/basket/"),
        *(("anonymous", f"/catalogue/map-of-lake-{number}_{number + 1}/") for number in range(12)),
        *(("anonymous", f"/catalogue/category/region-{number}_{number + 1}/") for number in range(4)),
        ("anonymous", "/offers/"), ("anonymous", "/search/?q=lake"),
        ("member", "/catalogue/"), *(("member", f"/catalogue/map-of-lake-{number}_{number + 1}/") for number in range(6)),
        ("member", "/basket/"), ("member", "/accounts/profile/"), ("member", "/accounts/orders/"), ("member", "/dashboard/"),
        ("member", "/dashboard/catalogue/"), ("member", "/admin/"), ("member", "/admin/catalogue/product/"),
    )

    def environment(self, port):
        return super().environment(port) | {"DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": str(self.folder)}

    def install(self):
        self.folder.mkdir()
        (self.folder / "media").mkdir()
        (self.folder / "settings.py").write_text(SETTINGS)
        (self.folder / "urls.py").write_text(URLS)
        (self.folder / "seed.py").write_text(SEED)
        self.run(sys.executable, "-m", "django", "migrate", "--verbosity=0")
        seeds = (f"SEED_PASSWORD={PASSWORD}", f"SEED_PRODUCTS={PRODUCTS}")
        self.run("env", *seeds, sys.executable, "-m", "django", "shell", "--verbosity=0", "-c", "exec(open('seed.py').read(), globals())")

    def serve(self, port):
        return [sys.executable, "-m", "django", "runserver", "--noreload", "--nothreading", f"127.0.0.1:{port}"]

    def connect(self, port):
        connection = psycopg2.connect(host="127.0.0.1", port=port, user="app", dbname="app", sslmode="disable")
        connection.autocommit = True
        return connection

    def login(self, client, port):
        token = client.get(port, "/accounts/login/").field("csrfmiddlewaretoken")
        form = {"csrfmiddlewaretoken": token, "login-username": "admin@app.test", "login-password": PASSWORD}
        form |= {"login-redirect_url": "/accounts/profile/", "login_submit": "Log In"}
        client.post(port, "/accounts/login/", form)
        if "admin@app.test" not in client.get(port, "/accounts/profile/").text:
            raise RuntimeError("Django Oscar: not logged in")

    def write(self, client, port, number):
        """A review of a product, or a product in the basket; the pages that show it."""
        lake = number % 12
        page, mark = f"/catalogue/map-of-lake-{lake}_{lake + 1}/", f"Edit number {number} of it"
        if number % 2 == 0:
            token = client.get(port, f"{page}reviews/add/").field("csrfmiddlewaretoken")
            form = {"csrfmiddlewaretoken": token, "title": mark, "score": 4, "body": "Seen it"}
            client.post(port, f"{page}reviews/add/", form)
            return mark, [page, f"{page}reviews/", "/catalogue/"]
        token = client.get(port, page).field("csrfmiddlewaretoken")
        client.post(port, f"/basket/add/{lake + 1}/", {"csrfmiddlewaretoken": token, "quantity": 1})
        return f"Map of lake {lake}", [page, "/basket/", "/catalogue/"]

    def normalise(self, text):
        text = re.sub(r"""name=["']csrfmiddlewaretoken["'] value=["'][^"']*["']""", "", text)
        return re.sub(r'id="(id_)?[0-9a-f]{6,}[^"]*"', "", text)
